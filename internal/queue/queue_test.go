package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/queue/file"
)

// bench is a Queue on a file, with simulated limits and backend.
type bench struct {
	*queue.Queue
	t     *testing.T
	path  string
	begin time.Time

	untold *untold

	mu       sync.Mutex
	policy   queue.Policy
	take     func(r *queue.Ref, at time.Time) (queue.Permit, error)
	send     func(e *queue.Entry) (queue.Answer, error)
	sent     []string // "time uri"
	taken    int
	undone   int
	released int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, path: filepath.Join(t.TempDir(), "queue"), begin: time.Now(), policy: queue.DefaultPolicy()}
	b.take = func(*queue.Ref, time.Time) (queue.Permit, error) { return queue.Permit{Allowed: true}, nil }
	b.send = func(*queue.Entry) (queue.Answer, error) { return queue.Answer{Status: http.StatusOK}, nil }
	b.open()
	return b
}

// open starts a Queue on the file, like a process that starts.
func (b *bench) open() {
	b.t.Helper()
	store, repair, err := file.Open(file.Options{Path: b.path, Clock: time.Now})
	if err != nil || repair != nil {
		b.t.Fatal(err, repair)
	}
	b.untold = &untold{Store: store}
	b.Queue = queue.New(queue.Options{
		Store: b.untold, Clock: time.Now, Logger: slog.New(slog.DiscardHandler),
		Random: func(n int64) int64 { return n - 1 },
		Policy: func(string, string) queue.Policy {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.policy
		},
		Take: func(_ context.Context, r *queue.Ref, at time.Time) (queue.Permit, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			p, err := b.take(r, at)
			if err == nil && p.Allowed {
				b.taken++
				p.Undo = func() { b.count(&b.undone) }
				p.Done = func() { b.count(&b.released) }
			}
			return p, err
		},
		Send: func(_ context.Context, e *queue.Entry, _ int64) (queue.Answer, error) {
			b.mu.Lock()
			b.sent = append(b.sent, fmt.Sprintf("%s %s", time.Since(b.begin), e.URI))
			b.mu.Unlock()
			b.mu.Lock()
			send := b.send
			b.mu.Unlock()
			return send(e)
		},
	})
	b.Start()
}

func (b *bench) count(n *int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*n++
}

func (b *bench) close() {
	b.t.Helper()
	if err := b.Close(b.t.Context()); err != nil {
		b.t.Error(err)
	}
}

// accept queues entries, named by key and number such as a1.
func (b *bench) accept(names ...string) (ids []string) {
	b.t.Helper()
	for _, name := range names {
		r, err := b.Accept(b.t.Context(), b.entry(name))
		if err != nil {
			b.t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	return ids
}

func (b *bench) entry(name string) *queue.Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	return &queue.Entry{
		ID: queue.NewID(), Domain: "api", Rule: "orders", Scope: "orders", Key: name[:1], Method: "POST", URI: name,
		Accepted: now, Expires: now.Add(b.policy.TTL),
	}
}

func (b *bench) want(sent ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if diff := cmp.Diff(sent, b.sent); diff != "" {
		b.t.Errorf("sent: %s", diff)
	}
}

func (b *bench) stats() queue.Stats {
	b.t.Helper()
	list, err := b.Stats(b.t.Context())
	if err != nil || len(list) != 1 {
		b.t.Fatal(list, err)
	}
	return list[0]
}

// everySecond allows one entry of each key per second.
func everySecond() func(*queue.Ref, time.Time) (queue.Permit, error) {
	next := map[string]time.Time{}
	return func(r *queue.Ref, at time.Time) (queue.Permit, error) {
		if wait := next[r.Line.Key].Sub(at); wait > 0 {
			return queue.Permit{RetryAfter: wait, Own: true}, nil
		}
		next[r.Line.Key] = at.Add(time.Second)
		return queue.Permit{Allowed: true}, nil
	}
}

func TestEachKeyAtItsRateAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.take = everySecond()
		b.accept("a1", "a2", "a3")
		synctest.Wait()
		time.Sleep(500 * time.Millisecond)
		b.accept("b1", "b2")
		time.Sleep(10 * time.Second)
		b.want("0s a1", "500ms b1", "1s a2", "1.5s b2", "2s a3")
		b.close()
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.taken != 5 || b.released != 5 || b.undone != 0 {
			t.Errorf("taken %d, undone %d, released %d", b.taken, b.undone, b.released)
		}
	})
}

func TestRetriesBackOffAndKeepTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.policy.BackoffMost = 4 * time.Second
		failures := map[string]int{"a1": 4}
		b.send = func(e *queue.Entry) (queue.Answer, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if failures[e.URI]--; failures[e.URI] < 0 {
				return queue.Answer{Status: http.StatusCreated}, nil
			}
			if failures[e.URI]%2 == 0 {
				return queue.Answer{}, errors.New("connection refused")
			}
			return queue.Answer{Status: http.StatusBadGateway}, nil
		}
		ids := b.accept("a1", "a2", "b1")
		time.Sleep(time.Minute)
		b.mu.Lock()
		slices.SortStableFunc(b.sent[:2], strings.Compare) // a1 and b1 at the same time
		b.mu.Unlock()
		b.want("0s a1", "0s b1", "1s a1", "3s a1", "7s a1", "11s a1", "11s a2")
		item, err := b.Find(t.Context(), ids[0])
		if err != nil || item.State != queue.Delivered || item.Result.Attempts != 5 || item.Result.Status != http.StatusCreated {
			t.Errorf("%+v, %v", item, err)
		}
		if s := b.stats(); s.Delivered != 3 || s.Failed != 4 || s.Entries != 0 {
			t.Errorf("%+v", s)
		}
		b.close()
	})
}

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		answers := []queue.Answer{{Status: http.StatusTooManyRequests, RetryAfter: 90 * time.Second}, {Status: http.StatusServiceUnavailable}, {Status: http.StatusConflict}}
		b.send = func(*queue.Entry) (queue.Answer, error) {
			a := answers[0]
			answers = answers[1:]
			return a, nil
		}
		b.accept("a1")
		time.Sleep(10 * time.Minute)
		b.want("0s a1", "1m30s a1", "1m32s a1") // 409 counts as delivered
		b.close()
	})
}

func TestDeadLettersAfterTheLastRetryOrTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.policy.Retries, b.policy.TTL = 2, time.Hour
		b.send = func(e *queue.Entry) (queue.Answer, error) {
			if e.URI == "a1" {
				return queue.Answer{Status: http.StatusInternalServerError}, nil
			}
			return queue.Answer{Status: http.StatusOK}, nil
		}
		b.take = func(r *queue.Ref, _ time.Time) (queue.Permit, error) {
			switch r.Line.Key {
			case "b":
				return queue.Permit{RetryAfter: 20 * time.Minute, Own: true}, nil
			case "c":
				return queue.Permit{RetryAfter: -1}, nil
			}
			return queue.Permit{Allowed: true}, nil
		}
		ids := b.accept("a1", "a2", "b1", "b2", "c1")
		time.Sleep(61 * time.Minute)
		b.want("0s a1", "1s a1", "3s a1", "3s a2")
		dead, err := b.List(t.Context(), queue.Query{State: queue.Dead, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		var why []string
		for _, item := range dead {
			why = append(why, fmt.Sprintf("%s %d %d %s", item.Entry.URI, item.Attempts.Count, item.Attempts.Status, item.Attempts.Error))
		}
		if diff := cmp.Diff([]string{
			"a1 3 500 ", "b1 0 0 not delivered within 1h0m0s", "b2 0 0 not delivered within 1h0m0s", "c1 0 0 its cost is above the limit",
		}, why); diff != "" {
			t.Error(diff)
		}
		// An operator retries one entry and drops another.
		b.mu.Lock()
		b.send = func(*queue.Entry) (queue.Answer, error) { return queue.Answer{Status: http.StatusOK}, nil }
		b.mu.Unlock()
		if found, err := b.Retry(t.Context(), []string{ids[0], ids[1], "nobody"}); err != nil || !slices.Equal(found, ids[:1]) {
			t.Errorf("retried %q, %v", found, err)
		}
		if found, err := b.Drop(t.Context(), []string{ids[2], "nobody"}); err != nil || !slices.Equal(found, ids[2:3]) {
			t.Errorf("dropped %q, %v", found, err)
		}
		time.Sleep(time.Second)
		if s := b.stats(); s.Dead != 2 || s.Entries != 0 || s.Delivered != 2 {
			t.Errorf("%+v", s)
		}
		b.close()
	})
}

func TestOldestDeadLettersMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.policy.Retries, b.policy.MaxEntries = 0, 3
		b.send = func(*queue.Entry) (queue.Answer, error) {
			return queue.Answer{Status: http.StatusInternalServerError}, nil
		}
		for i := range 5 {
			b.accept(fmt.Sprintf("a%d", i))
			time.Sleep(time.Second)
		}
		dead, err := b.List(t.Context(), queue.Query{State: queue.Dead, Limit: 10})
		if err != nil || len(dead) != 3 || dead[0].Entry.URI != "a2" {
			t.Errorf("%d are left, the first %+v; %v", len(dead), dead[0].Entry, err)
		}
		if s := b.stats(); s.Dead != 3 || s.Buried != 5 || s.Dropped != 2 {
			t.Errorf("%+v", s)
		}
		b.close()
	})
}

func TestAFullQueueRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.policy.MaxEntries, b.policy.MaxBytes, b.policy.KeyShare = 3, 1000, 100
		b.take = func(*queue.Ref, time.Time) (queue.Permit, error) {
			return queue.Permit{RetryAfter: time.Hour, Own: true}, nil
		}
		large := b.entry("a0")
		large.Body = make([]byte, 1000)
		if _, err := b.Accept(t.Context(), large); !errors.Is(err, queue.ErrFull) {
			t.Errorf("too many bytes: %v", err)
		}
		ids := b.accept("a1", "a2", "b1")
		if _, err := b.Accept(t.Context(), b.entry("b2")); !errors.Is(err, queue.ErrFull) {
			t.Errorf("too many entries: %v", err)
		}
		if _, err := b.Drop(t.Context(), ids[:1]); err != nil {
			t.Fatal(err)
		}
		b.accept("b2")
		if s := b.stats(); s.Full != 2 || s.Entries != 3 || s.Accepted != 4 {
			t.Errorf("%+v", s)
		}
		b.close()
	})
}

// One key cannot take the space of all others, in entries or bytes; one entry of each key may
// always wait.
func TestAKeyHasItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.policy.MaxEntries, b.policy.MaxBytes, b.policy.KeyShare = 15, 1000, 20
		b.take = func(*queue.Ref, time.Time) (queue.Permit, error) {
			return queue.Permit{RetryAfter: time.Hour, Own: true}, nil
		}
		put := func(name string, size int) error {
			e := b.entry(name)
			e.Body = make([]byte, size)
			_, err := b.Accept(t.Context(), e)
			return err
		}
		ids := b.accept("a1", "a2", "a3")
		if err := put("a4", 0); !errors.Is(err, queue.ErrFull) {
			t.Errorf("more than a fifth of the entries: %v", err)
		}
		for name, size := range map[string]int{"b1": 100, "c1": 500} {
			if err := put(name, size); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, size := range map[string]int{"b2": 100, "c2": 0} {
			if err := put(name, size); !errors.Is(err, queue.ErrFull) {
				t.Errorf("%s makes more than a fifth of the bytes: %v", name, err)
			}
		}
		b.close()
		b.open() // known already
		if err := put("a4", 0); !errors.Is(err, queue.ErrFull) {
			t.Errorf("after a restart: %v", err)
		}
		if _, err := b.Drop(t.Context(), ids[:1]); err != nil {
			t.Fatal(err)
		}
		b.accept("a4")
		b.close()
	})
}

func TestARepeatedIdempotencyKeyIsOneEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.take = everySecond()
		b.accept("a0")
		keyed := func(name, key string) *queue.Entry {
			e := b.entry(name)
			e.IdempotencyKey = key
			return e
		}
		first, err := b.Accept(t.Context(), keyed("a1", "k"))
		if err != nil || first.Again {
			t.Fatal(first, err)
		}
		for range 2 { // while it is pending, and after delivery
			again, err := b.Accept(t.Context(), keyed("a1", "k"))
			if err != nil || !again.Again || again.ID != first.ID {
				t.Errorf("%+v, %v", again, err)
			}
			if _, err := b.Accept(t.Context(), keyed("a2", "k")); !errors.Is(err, queue.ErrConflict) {
				t.Errorf("another request: %v", err)
			}
			time.Sleep(10 * time.Second)
		}
		if other, err := b.Accept(t.Context(), keyed("b1", "k")); err != nil || other.Again {
			t.Errorf("another sender: %+v, %v", other, err)
		}
		time.Sleep(2 * time.Hour) // forgotten together with its result
		if later, err := b.Accept(t.Context(), keyed("a1", "k")); err != nil || later.Again {
			t.Errorf("much later: %+v, %v", later, err)
		}
		if _, err := b.Find(t.Context(), first.ID); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("its result is still there: %v", err)
		}
		b.close()
	})
}

// While the limits are unavailable, nothing is sent and nothing is lost.
func TestLimitsThatDoNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		down := true
		b.take = func(*queue.Ref, time.Time) (queue.Permit, error) {
			if down {
				return queue.Permit{}, errors.New("no store")
			}
			return queue.Permit{Allowed: true}, nil
		}
		b.accept("a1", "a2")
		time.Sleep(time.Minute + 500*time.Millisecond)
		b.want()
		b.mu.Lock()
		down = false
		b.mu.Unlock()
		time.Sleep(time.Minute)
		b.want("1m1s a1", "1m1s a2")
		b.close()
	})
}

// Requests in flight may finish, waiting ones stay, and after a restart all are there with
// their attempts.
func TestDrainAndStartAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.policy.BackoffLeast, b.policy.BackoffMost = time.Minute, time.Minute
		answer := http.StatusInternalServerError
		b.send = func(e *queue.Entry) (queue.Answer, error) {
			if e.URI == "b1" {
				time.Sleep(5 * time.Second)
				return queue.Answer{Status: http.StatusOK}, nil
			}
			return queue.Answer{Status: answer}, nil
		}
		b.accept("a1")
		time.Sleep(time.Second)
		b.accept("b1", "b2")
		synctest.Wait()
		b.Drain()
		b.close() // in time for b1
		time.Sleep(9 * time.Second)
		answer = http.StatusOK
		b.open()
		time.Sleep(2 * time.Minute)
		b.want("0s a1", "1s b1", "15s b2", "1m0s a1")
		if s := b.stats(); s.Entries != 0 || s.Delivered != 2 {
			t.Errorf("%+v", s)
		}
		b.close()
	})
}

func TestSeveralAtOnceWhereTheOrderDoesNotMatter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.policy.Concurrency = 3
		b.send = func(*queue.Entry) (queue.Answer, error) {
			time.Sleep(time.Second)
			return queue.Answer{Status: http.StatusOK}, nil
		}
		b.accept("a1", "a2", "a3", "a4")
		synctest.Wait()
		time.Sleep(time.Minute)
		b.close()
		b.mu.Lock()
		defer b.mu.Unlock()
		if n := len(b.sent); n != 4 || !strings.HasPrefix(b.sent[2], "0s") || !strings.HasPrefix(b.sent[3], "1s") {
			t.Errorf("%q", b.sent)
		}
	})
}
