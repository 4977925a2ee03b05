package regions

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/headgate/headgate/store"
)

// ErrWrongStore is wrapped by errors about the store of another region that has messages
// of this one, or of a third one.
var ErrWrongStore = errors.New("regions: wrong store")

// fromPeer returns an error if a message is not from the region that it should be from.
// Gifts to a region that is this one would be charged here and never refunded. Messages
// of other releases may not say who they are from.
func (c *courier) fromPeer(text *content) error {
	if text.From == "" || text.From == c.peer {
		return nil
	}
	return fmt.Errorf("%w: in that of region %s are messages of region %s", ErrWrongStore, c.peer, text.From)
}

// ErrTwin is wrapped by the errors of a region whose name another store has too: what a
// region gives must be refunded by the store that wanted it, and by no other.
var ErrTwin = errors.New("regions: tokens for another store")

// hasTwin returns an error if the other region has given something to another store of this
// region, not long ago.
func (c *courier) hasTwin() error {
	if c.twin.IsZero() || c.clock().Sub(c.twin) > store.Recent {
		return nil
	}
	return fmt.Errorf("%w: region %s gives them to another store that calls itself %s; give each region a name of its own, unless this one has just lost its data", ErrTwin, c.peer, c.options.Name)
}

// Verify returns an error that wraps [ErrWrongStore] if the store of another region is
// that of this one. It publishes a message and looks for it everywhere. It does not wait
// longer than ctx for regions that cannot be reached.
func (s *Store) Verify(ctx context.Context) error {
	mark := writer{content: content{Hello: rand.Text()}}
	if err := s.asker.publish(ctx, &mark); err != nil {
		return nil //nolint:nilerr // this region's own store is down, which others report
	}
	wrong := make(chan error, len(s.couriers))
	var all sync.WaitGroup
	for _, c := range s.couriers {
		all.Go(func() { wrong <- s.look(ctx, c.peer, mark.Hello) })
	}
	go func() { all.Wait(); close(wrong) }()
	for {
		select {
		case err, more := <-wrong:
			if err != nil || !more {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// look looks for a mark of this region in the messages of a peer.
func (s *Store) look(ctx context.Context, peer, hello string) error {
	for after := ""; ; {
		batch, err := s.options.Exchange.Read(ctx, peer, after)
		if err != nil {
			return nil //nolint:nilerr // it is not reachable now
		}
		for i := range batch.Messages {
			m := &batch.Messages[i]
			var text content
			if err := json.Unmarshal(m.Data, &text); err == nil && text.Hello == hello {
				return fmt.Errorf("%w: that of region %s is the store of this region, %s", ErrWrongStore, peer, s.options.Name)
			}
			after = m.ID
		}
		if !batch.More {
			return nil
		}
	}
}
