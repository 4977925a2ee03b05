package queue_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/queue"
)

// counting is a store that has every entry, and counts how often it is asked.
type counting struct {
	queue.Store
	secret       []byte
	broken       bool
	looks, reads int
}

func (c *counting) Secret(context.Context) ([]byte, error) {
	c.reads++
	if c.broken {
		return nil, queue.ErrUnavailable
	}
	return c.secret, nil
}

func (c *counting) Look(_ context.Context, id string) (*queue.Item, error) {
	c.looks++
	return &queue.Item{Entry: &queue.Entry{ID: id}}, nil
}

// The store is asked only about ids that were issued, by any process that shares it.
func TestMadeUpIDsCostNothing(t *testing.T) {
	t.Parallel()
	now := time.Now()
	store := &counting{secret: bytes.Repeat([]byte{1}, queue.SecretSize)}
	open := func() *queue.Queue {
		return queue.New(queue.Options{Store: store, Clock: func() time.Time { return now }})
	}
	ask := func(q *queue.Queue, id string) int {
		w := httptest.NewRecorder()
		queue.ServeStatus(w, httptest.NewRequest(http.MethodGet, "/", nil), q, id)
		return w.Code
	}
	q, other := open(), open()
	id, err := q.NewID(t.Context())
	if err != nil || len(id) != 24 {
		t.Fatal(id, err)
	}
	for _, good := range []string{id, "0123456789ab" + id} { // a store may put its own part in front
		if a, b := ask(q, good), ask(other, good); a != 200 || b != 200 || store.looks != 2 {
			t.Errorf("%s: %d, %d, asked %d times", good, a, b, store.looks)
		}
		store.looks = 0
	}
	another, _ := q.NewID(t.Context())
	for _, bad := range []string{
		"", "x", strings.ToLower(id), id[1:], id + "0", id[:16] + another[16:], "1" + id[1:23] + "0", strings.Repeat("0", 24), strings.Repeat("0", 1000), queue.NewID(),
	} {
		if code := ask(q, bad); code != 404 || store.looks != 0 {
			t.Errorf("%q: %d, asked %d times", bad, code, store.looks)
		}
	}
	if store.reads != 2 {
		t.Errorf("the secret was read %d times by two processes", store.reads)
	}
	store.secret = bytes.Repeat([]byte{2}, queue.SecretSize) // the store has lost everything
	now = now.Add(time.Hour)
	if code := ask(q, id); code != 404 {
		t.Errorf("an id of the lost store: %d", code)
	}
	if id, _ = q.NewID(t.Context()); ask(other, id) != 200 {
		t.Error("processes disagree after the store was emptied")
	}
	store.broken = true
	if _, err := open().NewID(t.Context()); !errors.Is(err, queue.ErrUnavailable) {
		t.Error(err)
	}
	if code := ask(open(), id); code != 503 {
		t.Errorf("without the store: %d", code)
	}
}

// stalled is a store that answers once all who ask have asked.
type stalled struct {
	queue.Store
	asked  chan struct{}
	answer chan struct{}
}

func (s *stalled) Secret(context.Context) ([]byte, error) {
	s.asked <- struct{}{}
	<-s.answer
	return nil, queue.ErrUnavailable
}

// While the store does not answer, each caller waits for it once, not for those before it.
func TestIDsDoNotWaitForOneAnother(t *testing.T) {
	t.Parallel()
	store := &stalled{asked: make(chan struct{}), answer: make(chan struct{})}
	q := queue.New(queue.Options{Store: store, Clock: time.Now})
	for range 3 {
		go func() { _, _ = q.NewID(context.Background()) }()
	}
	defer close(store.answer)
	for i := range 3 {
		select {
		case <-store.asked:
		case <-time.After(10 * time.Second): // only if the test fails
			t.Fatalf("%d of 3 have asked the store", i)
		}
	}
}
