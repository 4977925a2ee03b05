package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/headgate/headgate/internal/queue"
)

// QueueDropKey is the body of POST /v1/queue/drop in place of ids: the names of a
// rule and its key, as of POST /v1/keys/{action}.
type QueueDropKey struct {
	Domain string `json:"domain,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Key    any    `json:"key"`
}

// ids reads a QueueChange.
func (d queues) ids(_ context.Context, _ *queue.Queue, body []byte) ([]string, error) {
	ids, err := readIDs(body)
	if err != nil {
		return nil, badKey(`the body must be {"ids":["…"]}: %v`, err)
	}
	return ids, nil
}

// idsOrKey reads a QueueChange or a QueueDropKey, of which it returns what is
// kept of the key: at most maxItems, those that are pending first.
func (d queues) idsOrKey(ctx context.Context, q *queue.Queue, body []byte) ([]string, error) {
	var keyed struct{ Key json.RawMessage }
	if json.Unmarshal(body, &keyed) != nil || keyed.Key == nil {
		return d.ids(ctx, q, body)
	}
	action := KeyAction{Name: "drop"}
	named, err := parseKeyBody(&action, body, d.Clock())
	if err != nil {
		return nil, badKey("%v", err)
	}
	targets, err := keys(d).targets(&action, named)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, state := range []queue.State{queue.Pending, queue.Dead} {
		for i := 0; i < len(targets) && len(ids) < maxItems; i++ {
			items, err := q.List(ctx, queue.Query{
				State: state, Lane: &queue.Lane{Scope: targets[i].scope, Key: targets[i].key}, Limit: maxItems - len(ids),
			})
			if err != nil {
				return nil, err
			}
			for j := range items {
				ids = append(ids, items[j].Entry.ID)
			}
		}
	}
	return ids, nil
}

// readIDs reads a QueueChange.
func readIDs(body []byte) ([]string, error) {
	var want QueueChange
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&want); err != nil {
		return nil, err
	}
	if decoder.More() {
		return nil, errors.New("there is more behind it")
	}
	if len(want.IDs) == 0 || len(want.IDs) > maxItems || slices.Contains(want.IDs, "") {
		return nil, fmt.Errorf("there must be from 1 to %d ids", maxItems)
	}
	return want.IDs, nil
}
