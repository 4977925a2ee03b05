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
	base, err := s.baseOf(id)
	if err != nil {
		return nil, err
	}
	texts, err := s.read(ctx, func(b rueidis.Builder) rueidis.Commands {
		return rueidis.Commands{
			b.Get().Key(base + ":d:" + id).Build(),
			b.Hget().Key(base + ":x").Field(id).Build(),
			b.Hget().Key(base + ":s").Field(id).Build(),
			b.Hget().Key(base + ":a").Field(id).Build(),
		}
	})
	switch {
	case err != nil:
		return nil, err
	case texts[0] != "":
		return delivered(texts[0])
	case texts[1] == "":
		return nil, queue.ErrNotFound
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

// read sends commands that read texts, and returns these; empty for those that are not there.
func (s *Store) read(ctx context.Context, commands func(rueidis.Builder) rueidis.Commands) (texts []string, err error) {
	err = s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		texts = texts[:0]
		for _, a := range client.DoMulti(ctx, commands(client.B())...) {
			text, err := a.ToString()
			if known(err) != nil {
				return err
			}
			texts = append(texts, text)
		}
		return nil
	})
	return texts, err
}

// delivered returns the item of a delivered entry from its result.
func delivered(text string) (*queue.Item, error) {
	item := &queue.Item{State: queue.Delivered}
	if err := json.Unmarshal([]byte(text), &item.Result); err != nil {
		return nil, fmt.Errorf("%w: %w", queue.ErrDamaged, err)
	}
	return item, nil
}
