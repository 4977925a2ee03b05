package blocks

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/store"
)

const (
	// sweepEvery is how often lines are looked at, at most.
	sweepEvery = 25 * time.Millisecond
	// mostOps is how many ops go to the store in one call.
	mostOps = 64
)

// send sends a draw, without waiting for its answer.
func (s *Store) send(l *line, d *drawing) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		l.finish(d, s.now(), store.Decision{}, store.ErrClosed)
		return
	}
	s.inFlight.Go(func() {
		answer, err := store.Execute(context.Background(), s.inner, l.draw(d.want))
		l.finish(d, s.now(), answer, err)
	})
}

// drawAhead draws the next block while there is still some of this one.
func (s *Store) drawAhead(l *line, now int64) {
	d, mine := l.begin(now, 0, 0)
	switch {
	case mine:
		s.send(l, d)
	case d == nil:
		l.asked.Store(false)
	}
}

// sweep looks at all lines again and again, until there are none.
func (s *Store) sweep() {
	ticker := time.NewTicker(sweepEvery) //nolint:forbidigo // blocks end on the real clock
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
		}
		s.refundLeft(context.Background(), s.lookAtAll(s.now()))
		if s.table.lines.Load() == 0 {
			s.sweeping.Store(false)
			// One may have been added since.
			if s.table.lines.Load() == 0 || !s.sweeping.CompareAndSwap(false, true) {
				return
			}
		}
	}
}

// lookAtAll looks at all lines, removes those that are no longer busy, and returns what
// is to be given back.
func (s *Store) lookAtAll(now int64) (back []returned) {
	s.table.each(func(l *line) {
		cold := l.look(now)
		back = append(back, l.refunds()...)
		if cold {
			s.table.remove(l)
			l.counters.keys.Add(-1)
		}
	})
	return back
}

// refundLeft gives blocks back. What fails is lost: it may have been given back.
func (s *Store) refundLeft(ctx context.Context, back []returned) {
	for part := range slices.Chunk(back, mostOps) {
		ops := make([]store.Op, 0, len(part))
		for i := range part {
			ops = append(ops, part[i].op)
		}
		out := make([]store.Decision, len(ops))
		err := store.ExecuteAll(ctx, s.inner, ops, out, store.Independent)
		for i := range part {
			if err != nil {
				part[i].lost(s.now())
			} else {
				part[i].arrived(s.now())
			}
		}
	}
}

// refundDraw gives back what a request took from the store before it was refused. What fails
// counts, as if it had been used.
func (s *Store) refundDraw(ctx context.Context, ops []store.Op, out []store.Decision) {
	at := make([]int, len(ops))
	for i := range at {
		at[i] = i
	}
	var call store.Batch
	store.AddRefunds(&call, ops, out, at)
	s.inner.Do(context.WithoutCancel(ctx), &call)
}

// Close gives back all blocks, for at most Options.ReturnTimeout, and closes the inner
// store.
func (s *Store) Close() error {
	if s.flaw != nil {
		return s.flaw
	}
	s.mu.Lock()
	already := s.closed
	s.closed = true
	s.mu.Unlock()
	if already {
		<-s.ended
	} else {
		s.end()
		close(s.ended)
	}
	return s.inner.Close()
}

// end gives back all blocks.
func (s *Store) end() {
	close(s.stop)
	ctx, cancel := context.WithTimeout(context.Background(), s.options.ReturnTimeout)
	defer cancel()
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		s.sweeper.Wait()
		s.table.each(func(l *line) { l.end(s.now()) })
		s.inFlight.Wait()
		var back []returned
		s.table.each(func(l *line) {
			back = append(back, l.refunds()...)
			s.table.remove(l)
			l.counters.keys.Add(-1)
		})
		s.refundLeft(ctx, back)
	}()
	select {
	case <-finished:
	case <-ctx.Done():
	}
}
