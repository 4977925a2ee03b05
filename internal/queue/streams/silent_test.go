package streams_test

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/queue/streams"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// Requests that come while the connection is being made wait for it and for their answer, as long
// as a decision may take.
func TestWaitingWhileConnecting(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Standalone(t).Addr)
	proxy.Delay(20 * time.Millisecond)
	for _, runs := range []bool{true, false} {
		q := node(t, streams.Options{Options: redis.Options{Addresses: []string{proxy.Addr}, Timeout: 10 * time.Second}}, "a", newBackend())
		if runs {
			q.Start()
		}
		var all sync.WaitGroup
		for i := range 30 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 3 * time.Millisecond)
				if waiting, err := q.Waiting(t.Context(), queue.Line{Scope: "s", Key: fmt.Sprint(i)}); waiting || err != nil {
					t.Errorf("request %d, the queue runs: %v: %v, %v", i, runs, waiting, err)
				}
			})
		}
		all.Wait()
		closing(t, q)
	}
}

// A Redis that stood still is asked again as soon as it answers in time, whether anything is saved
// or not. While it does not, only the first requests wait for it.
func TestSilenceEndsWithAnAnswer(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Standalone(t).Addr)
	for _, stall := range []time.Duration{300 * time.Millisecond, 1500 * time.Millisecond} {
		stands := func() time.Time { return time.Unix(0, 0) }
		const timeout = 100 * time.Millisecond
		s := streams.New(streams.Options{
			Options: redis.Options{Addresses: []string{proxy.Addr}, Prefix: "hg", Clock: stands, Timeout: timeout}, Logger: slog.New(slog.DiscardHandler),
		})
		line := queue.Line{Scope: "s", Key: "k"}
		awaitTrue(t, func() bool { _, err := s.Waiting(t.Context(), line); return err == nil })
		proxy.Stall()
		begin, slow := time.Now(), 0
		for time.Since(begin) < stall {
			asked := time.Now()
			if _, err := s.Waiting(t.Context(), line); !errors.Is(err, queue.ErrUnavailable) {
				t.Fatal(err)
			}
			if time.Since(asked) > timeout/2 {
				slow++
			}
			time.Sleep(time.Millisecond)
		}
		if slow > 8 { // all, 14
			t.Errorf("%d requests waited, one after another, in an outage of %v", slow, stall)
		}
		proxy.Heal()
		awaitTrue(t, func() bool { _, err := s.Waiting(t.Context(), line); return err == nil })
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
