package streams_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/queue/streams"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// Two senders wait for the confirmation of an entry: the first, and one that repeats it.
// Neither takes back what the other may have been promised.
func TestRepeatedIsNotTakenBack(t *testing.T) {
	server := redistest.Standalone(t)
	o := streams.Options{Options: redis.Options{Addresses: []string{server.Addr}}, Replicas: 1} // there is none
	nodes := []*queue.Queue{node(t, o, "first", newBackend()), node(t, o, "second", newBackend())}
	// accept waits for the replica until it is cancelled.
	accept := func(q *queue.Queue) (callOff func()) {
		ctx, cancel := context.WithCancel(t.Context())
		refused := make(chan error, 1)
		go func() {
			e := entry(1, 1)
			e.IdempotencyKey = "k"
			_, err := q.Accept(ctx, e)
			refused <- err
		}()
		return func() {
			cancel()
			if err := <-refused; err == nil {
				t.Error("accepted without a replica")
			}
		}
	}
	untold := func() int {
		key := server.Do("KEYS", "hg:q:{*}:u")
		if key == "" {
			return 0
		}
		return len(strings.Fields(server.Do("HVALS", key)))
	}
	for _, firstGoes := range []int{0, 1} {
		var off [2]func()
		off[0] = accept(nodes[0])
		awaitTrue(t, func() bool { return untold() == 1 })
		off[1] = accept(nodes[1])
		awaitTrue(t, func() bool { return untold() == 2 })
		off[firstGoes]()
		awaitTrue(t, func() bool { return untold() == 1 })
		if kept(server) == 0 {
			t.Errorf("%d is called off, and what the other waits for is gone", firstGoes)
		}
		off[1-firstGoes]()
		awaitTrue(t, func() bool { return kept(server) == 0 })
	}
	for _, q := range nodes {
		closing(t, q)
	}
}

// While Redis does not answer, Waiting takes no longer than a decision, and then does not call
// Redis for a while.
func TestSilentRedisIsNotWaitedFor(t *testing.T) {
	server := redistest.Standalone(t)
	now := atomic.Int64{}
	clock := func() time.Time { return time.Unix(now.Load(), 0) }
	connect := func() *streams.Store {
		s := streams.New(streams.Options{Options: redis.Options{Addresses: []string{server.Addr}, Prefix: "hg", Clock: clock, Timeout: 20 * time.Millisecond}, Logger: slog.New(slog.DiscardHandler)})
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	known := connect()
	awaitTrue(t, func() bool {
		now.Add(10)
		_, err := known.Waiting(t.Context(), queue.Line{Scope: "s", Key: "k"})
		return err == nil
	})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if waiting, err := known.Waiting(gone, queue.Line{Scope: "s", Key: "k"}); waiting || err != nil {
		t.Errorf("for a client that has hung up: %t, %v", waiting, err)
	}
	server.Pause()
	t.Cleanup(server.Resume)
	for name, s := range map[string]*streams.Store{"connected": known, "not connected": connect()} {
		now.Add(10)
		begin := time.Now()
		for range 1000 {
			if _, err := s.Waiting(t.Context(), queue.Line{Scope: "s", Key: "k"}); !errors.Is(err, queue.ErrUnavailable) {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if took := time.Since(begin); took > 10*time.Second { // asked each time, 20 s
			t.Errorf("%s: a thousand questions took %s", name, took)
		}
	}
}

// An Idempotency-Key is valid as long as anything is known of its entry. A repeat after the
// dead letter was deleted, or the result expired, is queued again.
func TestIdempotencyKeysEndWithTheirEntry(t *testing.T) {
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		o := streams.Options{Options: redis.Options{Addresses: []string{server.Addr}, Prefix: "hg", Clock: time.Now}, Logger: slog.New(slog.DiscardHandler)}
		p := queue.DefaultPolicy()
		p.MaxEntries, p.Retries = 1, 0
		var status atomic.Int32
		q := queue.New(queue.Options{
			Store: streams.New(o), Policy: func(string, string) queue.Policy { return p }, Clock: time.Now, Logger: o.Logger,
			Random: func(int64) int64 { return 0 },
			Take: func(context.Context, *queue.Ref, time.Time) (queue.Permit, error) {
				return queue.Permit{Allowed: true}, nil
			},
			Send: func(context.Context, *queue.Entry, int64) (queue.Answer, error) {
				return queue.Answer{Status: int(status.Load())}, nil
			},
		})
		q.Start()
		defer closing(t, q)
		// send accepts an entry and waits for its result.
		send := func(key string, number int, becomes queue.State) queue.Receipt {
			t.Helper()
			e := entry(1, number)
			e.IdempotencyKey = key
			receipt, err := q.Accept(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			awaitTrue(t, func() bool {
				item, err := q.Find(t.Context(), receipt.ID)
				return err == nil && item.State == becomes
			})
			return receipt
		}
		status.Store(500)
		first := send("k", 1, queue.Dead)
		if again := send("k", 1, queue.Dead); !again.Again || again.ID != first.ID {
			t.Errorf("a dead letter that is known: %+v", again)
		}
		send("other", 2, queue.Dead) // there is space for one
		if _, err := q.Find(t.Context(), first.ID); !errors.Is(err, queue.ErrNotFound) {
			t.Fatalf("the first is not forgotten: %v", err)
		}
		status.Store(200)
		second := send("k", 1, queue.Delivered)
		if second.Again || second.ID == first.ID {
			t.Errorf("a dead letter that is forgotten: %+v", second)
		}
		if again := send("k", 1, queue.Delivered); !again.Again || again.ID != second.ID {
			t.Errorf("a result that is known: %+v", again)
		}
		server.Do("DEL", "hg:q:{"+second.ID[:12]+"}:d:"+second.ID) // as if keep had passed
		if third := send("k", 1, queue.Delivered); third.Again || third.ID == second.ID {
			t.Errorf("a result that is forgotten: %+v", third)
		}
	})
}

// A replica that becomes the primary may have missed that an entry was delivered. It is sent
// again within minutes, not when the process ends, behind all newer ones.
func TestDeliveriesThatRedisForgot(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	var passed atomic.Int64
	clock := func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
	store := streams.New(streams.Options{Options: redis.Options{Addresses: []string{server.Addr}, Prefix: "hg", Clock: clock}, Logger: slog.New(slog.DiscardHandler)})
	sent, answer := make(chan string, 100), make(chan struct{}, 100)
	q := queue.New(queue.Options{
		Store: store, Policy: policy, Clock: clock, Logger: slog.New(slog.DiscardHandler), Random: func(int64) int64 { return 0 },
		Take: func(context.Context, *queue.Ref, time.Time) (queue.Permit, error) {
			return queue.Permit{Allowed: true}, nil
		},
		Send: func(_ context.Context, e *queue.Entry, _ int64) (queue.Answer, error) {
			sent <- e.URI
			<-answer
			return queue.Answer{Status: http.StatusOK}, nil
		},
	})
	q.Start()
	defer closing(t, q)
	e := entry(1, 1)
	if _, err := q.Accept(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	<-sent
	var before [][2]string // the replica's state
	for _, key := range lines(server.Do("KEYS", "hg:q:{*")) {
		if text, err := server.Command("DUMP", key); err == nil {
			before = append(before, [2]string{key, fmt.Sprint(text)})
		}
	}
	answer <- struct{}{}
	delivered := func() bool { return kept(server) == 0 }
	awaitTrue(t, delivered)
	for _, row := range before {
		if !strings.Contains(row[0], ":l:") { // which the process keeps renewing
			server.Do("RESTORE", row[0], "0", row[1], "REPLACE")
		}
	}
	if delivered() {
		t.Fatal("Redis has not forgotten the delivery")
	}
	answer <- struct{}{}
	passed.Store(int64(2 * time.Minute))
	awaitTrue(t, func() bool { return len(sent) == 1 && delivered() })
}
