package streams

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/queue"
)

// note is what Redis has of an entry apart from the request. Older versions write only the
// attempts, and only after the first.
type note struct {
	queue.Attempts
	Accepted time.Time `json:"accepted,omitzero"`
}

func noteOf(a *queue.Attempts, accepted time.Time) string {
	text, _ := json.Marshal(note{*a, accepted.UTC()}) // never fails
	return string(text)
}

// Look implements [queue.Store]. It reads the request only of an entry without a complete note.
func (s *Store) Look(ctx context.Context, id string) (*queue.Item, error) {
	texts, item, err := s.texts(ctx, id, ":x")
	if err != nil || item != nil {
		return item, err
	}
	item, n := &queue.Item{}, note{}
	text := texts[2]
	if strings.HasPrefix(texts[1], "0 ") {
		item.State, text = queue.Dead, texts[3]
	}
	if json.Unmarshal([]byte(cmp.Or(text, "{}")), &n) != nil || n.Accepted.IsZero() {
		return s.Find(ctx, id)
	}
	item.Attempts, item.Entry = n.Attempts, &queue.Entry{ID: id, Accepted: n.Accepted}
	return item, nil
}

// texts reads what there is of an entry: its result, its field of a hash (:r the request, :x
// the place), and the notes of a pending entry and of a dead letter; empty if there is none. Of
// a delivered entry it returns the item.
func (s *Store) texts(ctx context.Context, id, hash string) (texts [4]string, done *queue.Item, err error) {
	base, err := s.baseOf(id)
	if err != nil {
		return texts, nil, err
	}
	err = s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		for i, a := range client.DoMulti(ctx,
			client.B().Get().Key(base+":d:"+id).Build(),
			client.B().Hget().Key(base+hash).Field(id).Build(),
			client.B().Hget().Key(base+":s").Field(id).Build(),
			client.B().Hget().Key(base+":a").Field(id).Build(),
		) {
			var err error
			if texts[i], err = a.ToString(); known(err) != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err != nil:
	case texts[0] != "":
		done, err = delivered(texts[0])
	case texts[1] == "":
		err = queue.ErrNotFound
	}
	return texts, done, err
}

// delivered returns the item of a delivered entry from its result.
func delivered(text string) (*queue.Item, error) {
	item := &queue.Item{State: queue.Delivered}
	if err := json.Unmarshal([]byte(text), &item.Result); err != nil {
		return nil, fmt.Errorf("%w: %w", queue.ErrDamaged, err)
	}
	return item, nil
}
