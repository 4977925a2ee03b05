package upgrade_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/queue/file"
	"github.com/headgate/headgate/internal/queue/streams"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

func queueInFile(t *testing.T, path string) queue.Store {
	t.Helper()
	return queueInFileAt(t, path, time.Now)
}

func queueInFileAt(t *testing.T, path string, clock func() time.Time) queue.Store {
	t.Helper()
	s, repair, err := file.Open(file.Options{Path: path, Clock: clock})
	if err != nil || repair != nil {
		t.Fatal(err, repair)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func queueInRedis(t *testing.T, server *redistest.Server) queue.Store {
	t.Helper()
	s := streams.New(streams.Options{
		Options: redis.Options{Addresses: []string{server.Addr}, Prefix: "hg", Timeout: 10 * time.Second, Clock: time.Now},
		Logger:  slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// firstID is the ID of the first request that fill puts into a queue.
const firstID = "5K2J0B8H3M4Q6R1T9V7P2C40"

// fill puts a request into a queue whose claims give a part of their limit, which needs
// the later version of records, and one that does not, of which an attempt has failed.
func fill(t *testing.T, s queue.Store) {
	t.Helper()
	put(t, s, 0, "")
	put(t, s, 1, "@Asia/Tokyo")
	sending(t, s, 2, func(ctx context.Context, ref *queue.Ref, _ *queue.Entry) error {
		if bare(ref.ID) != firstID {
			return nil
		}
		return s.Postpone(ctx, ref, &queue.Attempts{Count: 1, Status: http.StatusServiceUnavailable, Error: "größe ☃", Next: start})
	})
}

func put(t *testing.T, s queue.Store, i int, given string) {
	t.Helper()
	p := queue.DefaultPolicy()
	if _, err := s.Put(t.Context(), entry(i, given), &p); err != nil {
		t.Fatal(err)
	}
}

func entry(i int, given string) *queue.Entry {
	return &queue.Entry{
		ID: fmt.Sprint(strings.TrimSuffix(firstID, "0"), i), Domain: "api", Rule: "orders", Scope: "\x03api\x06orders", Key: "\x01a",
		Claims: []queue.Claim{{Rule: "orders", Key: "\x01a", Cost: 1}, {Rule: "all", Cost: 20, Given: given}},
		Method: http.MethodPost, URI: "/orders?x=1", Host: "api.example",
		Header: http.Header{"Content-Type": {"application/json"}, "X-Many": {"a", "b"}}, Body: []byte("{\"n\":\"größe ☃\"}\x00"),
		IdempotencyKey: fmt.Sprint("mine", i), Accepted: start.Add(time.Duration(i) * time.Second), Expires: farAway,
	}
}

// bury makes a request a dead letter, and closes the queue.
func bury(t *testing.T, s queue.Store) {
	t.Helper()
	put(t, s, 2, "")
	p := queue.DefaultPolicy()
	sending(t, s, 1, func(ctx context.Context, ref *queue.Ref, _ *queue.Entry) error {
		_, err := s.Bury(ctx, ref, &queue.Attempts{Count: 3, Status: http.StatusBadGateway, Error: "größe ☃", Ended: start}, &p)
		return err
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// deliver sends a request, whose result is kept, and closes the queue.
func deliver(t *testing.T, s queue.Store) {
	t.Helper()
	put(t, s, 3, "")
	sending(t, s, 1, func(ctx context.Context, ref *queue.Ref, e *queue.Entry) error {
		r := &queue.Result{Status: http.StatusCreated, ContentType: "text/plain", Body: []byte("größe ☃\x00"), Cut: true, Attempts: 2, Accepted: e.Accepted, Delivered: start}
		return s.Deliver(ctx, ref, r, 100*365*24*time.Hour)
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// writeQueue makes the queue in Redis that later versions must read.
func writeQueue(t *testing.T, server *redistest.Server) {
	t.Helper()
	bury(t, queueInRedis(t, server))
	deliver(t, queueInRedis(t, server))
	q := queueInRedis(t, server)
	fill(t, q)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
}

// sent sends both requests of a queue and returns it as a text.
func sent(t *testing.T, s queue.Store) (text string) {
	t.Helper()
	sending(t, s, 2, func(ctx context.Context, ref *queue.Ref, e *queue.Entry) error {
		text += fmt.Sprintf("sent %s %s %s\n", bare(ref.ID), e.Method, e.URI)
		return s.Deliver(ctx, ref, &queue.Result{Status: http.StatusOK, Accepted: e.Accepted, Delivered: start}, time.Minute)
	})
	return text
}

// sending calls do for the first n requests that a queue has to send.
func sending(t *testing.T, s queue.Store, n int, do func(context.Context, *queue.Ref, *queue.Entry) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	found, done := make(sink, 100), make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx, found)
	}()
	for range n {
		select {
		case ref := <-found:
			e, err := s.Load(ctx, &ref)
			if err == nil {
				err = do(ctx, &ref, e)
			}
			if err != nil {
				t.Fatal(err)
			}
		case <-ctx.Done():
			t.Fatal("the queue has nothing to send")
		}
	}
	cancel()
	<-done
}

// sink receives the requests of a queue.
type sink chan queue.Ref

func (s sink) Add(r queue.Ref, _ queue.Attempts) { s <- r }
func (sink) Remove(queue.Ref)                    {}
func (sink) Forget(string)                       {}
func (sink) Busy(string) bool                    { return false }
func (sink) Count(string) int64                  { return 0 }

// listed returns what is in a queue as a text.
func listed(t *testing.T, s queue.Store) (text string) {
	t.Helper()
	for _, state := range []queue.State{queue.Pending, queue.Dead} {
		items, err := s.List(t.Context(), queue.Query{State: state, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			found, err := s.Find(t.Context(), item.Entry.ID)
			if err != nil {
				t.Fatal(err)
			}
			text += shownEntry(fmt.Sprint(found.State), found.Entry, &found.Attempts)
		}
	}
	for i := range 4 {
		text += repeated(t, s, i)
	}
	return text
}

// repeated puts a request a second time, which finds the first, and returns what became of
// that one.
func repeated(t *testing.T, s queue.Store, i int) string {
	t.Helper()
	e, p := entry(i, ""), queue.DefaultPolicy()
	e.ID = strings.TrimSuffix(firstID, "40") + "9" + fmt.Sprint(i)
	r, err := s.Put(t.Context(), e, &p)
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.Find(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("repeated %d: %s, again %t, %s\n", i, bare(r.ID), r.Again, found.State)
	if a := &found.Result; found.State == queue.Delivered {
		text += fmt.Sprintf("  %d %s %q, cut %t, %d attempts, accepted %s, delivered %s\n", a.Status, a.ContentType, a.Body, a.Cut, a.Attempts,
			a.Accepted.UTC().Format(time.RFC3339), a.Delivered.UTC().Format(time.RFC3339))
	}
	return text
}

// ends runs a queue whose results have ended, and waits until it has forgotten the one
// that deliver made.
func ends(t *testing.T, s queue.Store) {
	t.Helper()
	sending(t, s, 2, func(ctx context.Context, _ *queue.Ref, _ *queue.Entry) error {
		var err error
		for err == nil && ctx.Err() == nil {
			_, err = s.Find(ctx, entry(3, "").ID)
		}
		if errors.Is(err, queue.ErrNotFound) {
			return nil
		}
		return fmt.Errorf("the result of a request that was sent does not end: %w", cmp.Or(err, ctx.Err()))
	})
}

// shownEntry names each field, so that new ones do not change the text.
func shownEntry(state string, e *queue.Entry, a *queue.Attempts) string {
	text := fmt.Sprintf("%s %s: %s %s%s\n", state, bare(e.ID), e.Method, e.Host, e.URI)
	text += fmt.Sprintf("  rule %s of %s, scope %q, key %q, idempotency key %q\n", e.Rule, e.Domain, e.Scope, e.Key, e.IdempotencyKey)
	for _, c := range e.Claims {
		text += fmt.Sprintf("  claims %d of %s, key %q, given %q\n", c.Cost, c.Rule, c.Key, c.Given)
	}
	text += fmt.Sprintf("  header %q\n  body %q\n", e.Header, e.Body)
	text += fmt.Sprintf("  accepted %s, expires %s\n", e.Accepted.UTC().Format(time.RFC3339), e.Expires.UTC().Format(time.RFC3339))
	if a.Count > 0 {
		text += fmt.Sprintf("  %d attempts, the last with %d %q, next %s, ended %s\n", a.Count, a.Status, a.Error, a.Next.UTC().Format(time.RFC3339), a.Ended.UTC().Format(time.RFC3339))
	}
	return text
}

// bare is an ID without the partition that comes before it in Redis.
func bare(id string) string { return id[len(id)-len(firstID):] }
