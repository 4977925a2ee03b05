package redis_test

import (
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// TestLateTakesHoldNothing: a server that stands still gets takes whose callers leave. When it
// goes on, it executes them: no slot is held for nobody, and no lease gets another name.
func TestLateTakesHoldNothing(t *testing.T) {
	t.Parallel()
	requests := store.Op{Key: "requests", Rule: headgate.PerHour(1000).Rule(), Cost: 1}
	for name, c := range map[string]struct {
		stall time.Duration
		ops   func(op store.Op) []store.Op
	}{
		"for a moment":   {200 * time.Millisecond, func(op store.Op) []store.Op { return []store.Op{op} }},
		"with a rate":    {200 * time.Millisecond, func(op store.Op) []store.Op { return []store.Op{requests, op} }},
		"until it fails": {1500 * time.Millisecond, func(op store.Op) []store.Op { return []store.Op{op} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Standalone(t)
			db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: 100 * time.Millisecond})
			op := places("late")
			out := make([]store.Decision, len(c.ops(op)))
			if err := store.ExecuteAll(t.Context(), db, c.ops(op), out, store.AllOrNothing); err != nil {
				t.Fatal(err)
			}
			held := out[len(out)-1]
			server.Pause()
			var callers sync.WaitGroup
			for i := range 30 {
				callers.Go(func() {
					ops := c.ops(op)
					if i == 0 {
						ops = []store.Op{about(op, store.KindRenew, held)}
					}
					wait(time.Duration(i) * time.Millisecond)
					if err := store.ExecuteAll(t.Context(), db, ops, make([]store.Decision, len(ops)), store.AllOrNothing); err == nil {
						t.Error("a server that stands still answers")
					}
				})
			}
			callers.Wait()
			wait(c.stall - 130*time.Millisecond)
			server.Resume()
			answers := 0
			for end := time.Now().Add(10 * time.Second); answers < 20; wait(10 * time.Millisecond) {
				d, err := store.Execute(t.Context(), db, about(op, store.KindPeek, held))
				if err == nil {
					answers++
				}
				if time.Now().After(end) {
					t.Fatal(err)
				}
				if err == nil && d.Remaining != 2 {
					t.Fatalf("%d slots are free, want 2: one is held", d.Remaining)
				}
			}
			if d := take(t, db, about(op, store.KindRelease, held)); d.Granted != 1 {
				t.Errorf("the lease is gone: %+v", d)
			}
		})
	}
}

// TestClocksMayDiffer: whatever a process believes of the server's clock, it gets its slots,
// and then knows better.
func TestClocksMayDiffer(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	requests := store.Op{Key: "requests", Rule: headgate.PerHour(1000).Rule(), Cost: 1}
	for _, ahead := range []time.Duration{0, -time.Hour, time.Hour, -100 * time.Hour, -patient} {
		for _, ops := range [][]store.Op{{places("clock")}, {requests, places("clock")}} {
			db.BelieveClock(ahead)
			out := make([]store.Decision, len(ops))
			if err := store.ExecuteAll(t.Context(), db, ops, out, store.AllOrNothing); err != nil {
				t.Fatal(ahead, err)
			}
			last := out[len(out)-1]
			if !last.Allowed || last.Lease == 0 {
				t.Errorf("%s: %+v", ahead, last)
			}
			if got := db.Ahead().Abs(); got > 5*time.Second {
				t.Errorf("%s: then it believes in %s", ahead, got)
			}
			take(t, db, about(ops[len(ops)-1], store.KindRelease, last))
		}
	}
}

// TestSlotsBesideACalendar: what begins no lease has no deadline, also where a call is sent
// again because another of its limits needs another calendar window.
func TestSlotsBesideACalendar(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient, Clock: func() time.Time { return time.Unix(1e9, 0) }})
	hourly := store.Op{Key: "hourly", Rule: headgate.PerCalendar(100, store.Hour, time.UTC).Rule(), Cost: 1}
	op := places("next to it")
	held := take(t, db, op)
	for _, kind := range []store.Kind{store.KindPeek, store.KindRenew, store.KindTake, store.KindRelease} {
		out := make([]store.Decision, 2)
		if err := store.ExecuteAll(t.Context(), db, []store.Op{hourly, about(op, kind, held)}, out, store.Independent); err != nil {
			t.Fatal(kind, err)
		}
		if !out[0].Allowed || !out[1].Allowed {
			t.Errorf("%s: %+v", kind, out)
		}
		if kind == store.KindRenew {
			held = out[1]
		}
	}
}
