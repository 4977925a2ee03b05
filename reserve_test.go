package headgate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
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
			if err != nil || !r.OK() {
				t.Fatal(r, err)
			}
			store.down = true
			nothing := name == "commit of all"
			for range 2 {
				if err := row.settle(t.Context(), &r); errors.Is(err, headgate.ErrUnavailable) == nothing {
					t.Errorf("while the store is down: %v", err)
				}
			}
			if stats := local.Stats(); stats.Keys != 0 {
				t.Errorf("the fallback was told of %d keys that it did not take", stats.Keys)
			}
			store.down = false
			for range 2 {
				if err := row.settle(t.Context(), &r); err != nil {
					t.Error(err)
				}
			}
			if d, err := l.Peek(t.Context(), "k", limit, 1); err != nil || d.Remaining != row.want {
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
	ops := []headgate.Op{
		{Key: "k", Limit: headgate.PerSecond(1), Cost: 1},
		{Key: "k", Limit: headgate.PerMinute(9), Cost: 1, At: c.now.UnixMicro()},
	}
	for i := range 3 {
		if d, err := l.AllowAll(t.Context(), ops, make([]headgate.Decision, 2)); err != nil || !d.Allowed {
			t.Errorf("round %d: %+v, %v", i, d, err)
		}
		c.now = c.now.Add(time.Second)
	}
	if ops[0].At != 0 || ops[1].At == 0 {
		t.Errorf("the caller's times were changed: %d, %d", ops[0].At, ops[1].At)
	}
	done := make(chan error, 4)
	for range cap(done) {
		go func() { done <- l.Batch(context.Background(), ops, make([]headgate.Decision, 2)) }()
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
	ops, out := []headgate.Op{{Key: "k", Limit: headgate.PerSecond(1), Cost: 1}}, make([]headgate.Decision, 1)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _, _ = l.AllowAll(ctx, ops, out) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
