package headgate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// TestSettlingIsTriedAgain: what a store could not settle can be settled when it is
// back, once, and only there.
func TestSettlingIsTriedAgain(t *testing.T) {
	limit := headgate.PerHour(1000)
	for name, row := range map[string]struct {
		settle func(context.Context, *headgate.Reservation) error
		want   int64 // of 1000 are left
	}{
		"commit of more": {func(ctx context.Context, r *headgate.Reservation) error { return r.Commit(ctx, 500) }, 500},
		"commit of less": {func(ctx context.Context, r *headgate.Reservation) error { return r.Commit(ctx, 40) }, 960},
		"commit of all":  {func(ctx context.Context, r *headgate.Reservation) error { return r.Commit(ctx, 100) }, 900},
		"cancel":         {func(ctx context.Context, r *headgate.Reservation) error { return r.Cancel(ctx) }, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			store, local, c := &outage{Store: memory.New()}, memory.New(), newClock()
			l := headgate.New(store, headgate.WithClock(c.Now), headgate.WithFallback(local, 1))
			r, err := l.Reserve(t.Context(), "k", limit, 100, 0)
			if err != nil || !r.Decision.Allowed {
				t.Fatal(r, err)
			}
			store.down = true
			nothing := name == "commit of all"
			for range 2 {
				if err := row.settle(t.Context(), r); errors.Is(err, headgate.ErrUnavailable) == nothing {
					t.Errorf("while the store is down: %v", err)
				}
			}
			if stats := local.Stats(); stats.Keys != 0 {
				t.Errorf("the fallback was told of %d keys that it did not take", stats.Keys)
			}
			store.down = false
			for range 2 {
				if err := row.settle(t.Context(), r); err != nil {
					t.Error(err)
				}
			}
			if d, err := l.Peek(t.Context(), "k", limit); err != nil || d.Remaining != row.want {
				t.Errorf("%d left, want %d (%v)", d.Remaining, row.want, err)
			}
		})
	}
}

// TestOpsAreTheCallers: a list of ops can be asked about again, by several
// goroutines, and each time is asked of now.
func TestOpsAreTheCallers(t *testing.T) {
	c := newClock()
	l := headgate.New(memory.New(), headgate.WithClock(c.Now))
	ops := []store.Op{
		{Key: "k", Rule: headgate.PerSecond(1).Rule(), Cost: 1},
		{Key: "k", Rule: headgate.PerMinute(9).Rule(), Cost: 1, At: c.now.UnixMicro()},
	}
	for i := range 3 {
		if d, err := l.Caller().AllowAll(t.Context(), ops, make([]store.Decision, 2)); err != nil || !d.Allowed {
			t.Errorf("round %d: %+v, %v", i, d, err)
		}
		c.now = c.now.Add(time.Second)
	}
	if ops[0].At != 0 || ops[1].At == 0 {
		t.Errorf("the caller's times were changed: %d, %d", ops[0].At, ops[1].At)
	}
	done := make(chan error, 4)
	for range cap(done) {
		go func() { done <- l.Caller().Batch(context.Background(), ops, make([]store.Decision, 2)) }()
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestOpsCostNoMemory: the Limiter's clock costs no memory per call.
func TestOpsCostNoMemory(t *testing.T) { //nolint:paralleltest // it counts allocations
	l := headgate.New(memory.New(), headgate.WithClock(newClock().Now))
	ops, out := []store.Op{{Key: "k", Rule: headgate.PerSecond(1).Rule(), Cost: 1}}, make([]store.Decision, 1)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _, _ = l.Caller().AllowAll(ctx, ops, out) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestRefundAfterTheStoresClockWasSet: a refund finds its take although the store's clock
// was set in between and that of this process was not.
func TestRefundAfterTheStoresClockWasSet(t *testing.T) {
	t.Parallel()
	jumps := []time.Duration{
		time.Second, 7 * time.Second, 30 * time.Second, 59 * time.Second, time.Minute, 90 * time.Second, -time.Second, -30 * time.Second, -time.Hour,
	}
	for _, a := range store.Algorithms() {
		for _, by := range jumps {
			for _, settle := range []string{"cancel", "commit 1", "give back"} {
				got, want := leftAfter(t, a, by, settle, false), leftAfter(t, a, by, settle, true)
				if got != want {
					t.Errorf("%s: %s, the clock set by %s: %d left, want %d", a, settle, by, got, want)
				}
			}
		}
	}
}

// leftAfter returns what is left of 12 per minute after two takes of 2, a clock that is
// set, another's take of 3, and the end of one of the first two. own says whether the
// Limiter uses the clock too, and so knows by how much.
func leftAfter(t *testing.T, a headgate.Algorithm, by time.Duration, settle string, own bool) int64 {
	t.Helper()
	ctx, c, limit, since := t.Context(), newClock(), headgate.PerMinute(12).WithAlgorithm(a), time.Duration(0)
	l := headgate.New(memory.New(memory.WithClock(c.Now)))
	if own {
		l, since = headgate.New(memory.New(), headgate.WithClock(c.Now)), by
	}
	r, err := l.Reserve(ctx, "k", limit, 2, 0)
	ops, out := []store.Op{{Key: "k", Rule: limit.Rule(), Cost: 2}}, make([]store.Decision, 1)
	_, err2 := l.Caller().AllowAll(ctx, ops, out)
	c.now = c.now.Add(by)
	_, err3 := l.AllowN(ctx, "k", limit, 3)
	if err = errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	switch settle {
	case "cancel":
		err = r.Cancel(ctx)
	case "commit 1":
		err = r.Commit(ctx, 1)
	default:
		err = l.Caller().Refund(ctx, ops, out, since)
	}
	c.now = c.now.Add(100 * time.Millisecond)
	d, err2 := l.Peek(ctx, "k", limit)
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}
