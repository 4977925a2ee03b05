package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func ExampleLimiter_Acquire() {
	limiter := headgate.New(memory.New())
	limit := headgate.Concurrent(2).WithLease(30 * time.Second)
	ctx := context.Background()
	first, _ := limiter.Acquire(ctx, "customer-42", limit)
	second, _ := limiter.Acquire(ctx, "customer-42", limit)
	third, _ := limiter.Acquire(ctx, "customer-42", limit)
	fmt.Println(first.Decision.Allowed, second.Decision.Allowed, third.Decision.Allowed)

	first.Keep() // renews it, should the work take longer than 30s
	released, _ := first.Release(ctx)
	again, _ := first.Release(ctx)
	fmt.Println(released, again)
	// Output:
	// true true false
	// true false
}

func ExampleReservation_Commit() {
	limiter := headgate.New(memory.New(memory.WithClock(func() time.Time { return time.UnixMicro(1_767_225_600_000_000) })))
	limit := headgate.PerDay(100_000).WithAlgorithm(headgate.FixedWindow)
	ctx := context.Background()
	// What an answer costs is known when it is there: reserve an estimate.
	r, _ := limiter.Reserve(ctx, "customer-42", limit, 4000, 0)
	if r.Decision.Allowed {
		_ = r.Commit(ctx, 1234)
	}
	left, _ := limiter.Peek(ctx, "customer-42", limit)
	fmt.Println(left.Remaining)
	// Output: 98766
}

// TestLeaseKeep: a lease that is kept lasts, and one whose holder has gone does
// not.
func TestLeaseKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := headgate.New(memory.New(), headgate.WithClock(time.Now))
		limit := headgate.Concurrent(1).WithLease(10 * time.Second)
		ctx := t.Context()
		acquire := func(want bool) *headgate.Lease {
			t.Helper()
			l, err := limiter.Acquire(ctx, "k", limit)
			if err != nil || l.Decision.Allowed != want {
				t.Fatalf("%+v, %v; want OK %t", l.Decision, err, want)
			}
			return l
		}
		kept := acquire(true)
		kept.Keep()
		time.Sleep(time.Minute)
		acquire(false)
		if ended, err := kept.Release(ctx); err != nil || !ended {
			t.Errorf("release: %t, %v", ended, err)
		}
		left := acquire(true)
		time.Sleep(10*time.Second - time.Microsecond)
		acquire(false)
		time.Sleep(time.Microsecond)
		other := acquire(true)
		if ok, err := left.Renew(ctx); ok || err != nil {
			t.Errorf("renewal of what has ended: %t, %v", ok, err)
		}
		if ended, _ := left.Release(ctx); ended {
			t.Error("a lease that had ended was released")
		}
		acquire(false) // other is still there
		if ended, _ := other.Release(ctx); !ended {
			t.Error("the release of a lease that had ended took another's place")
		}
	})
}

// stalled is a store that does not answer for a while.
type stalled struct {
	store.Store
	until time.Time
}

func (s *stalled) Do(ctx context.Context, b *store.Batch) {
	if time.Now().Before(s.until) {
		b.Fail(headgate.ErrUnavailable)
		return
	}
	s.Store.Do(ctx, b)
}

// TestReleaseInAStall: a slot is free again soon after the store answers again, and not
// only when the lease ends. Nobody tries for longer than that.
func TestReleaseInAStall(t *testing.T) {
	for _, row := range []struct{ stall, after time.Duration }{
		{900 * time.Millisecond, 2 * time.Second},
		{40 * time.Second, time.Minute},
		{time.Hour, 11 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			db := &stalled{Store: memory.New(memory.WithClock(time.Now))}
			limiter, limit := headgate.New(db), headgate.Concurrent(4).WithLease(10*time.Minute)
			l, err := limiter.Acquire(t.Context(), "k", limit)
			if err != nil {
				t.Fatal(err)
			}
			db.until = time.Now().Add(row.stall)
			if ended, err := l.Release(t.Context()); ended || !errors.Is(err, headgate.ErrUnavailable) {
				t.Errorf("release: %t, %v", ended, err)
			}
			time.Sleep(row.after)
			synctest.Wait()
			db.until = time.Time{}
			if d, err := limiter.Peek(t.Context(), "k", limit); err != nil || d.Remaining != 4 {
				t.Errorf("%s after a stall of %s: %+v, %v", row.after, row.stall, d, err)
			}
		})
	}
}

// slow is a store that takes half a second to fail, some times.
type slow struct {
	store.Store
	fails int
}

func (s *slow) Do(ctx context.Context, b *store.Batch) {
	if s.fails > 0 {
		s.fails--
		time.Sleep(500 * time.Millisecond)
		b.Fail(headgate.ErrUnavailable)
		return
	}
	s.Store.Do(ctx, b)
}

// TestReleaseMeetsARenewal: a renewal that fires while Release waits for the store does not
// take the slot again.
func TestReleaseMeetsARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &slow{Store: memory.New(memory.WithClock(time.Now))}
		limiter, limit := headgate.New(db), headgate.Concurrent(4).WithLease(time.Minute)
		l, err := limiter.Acquire(t.Context(), "k", limit)
		if err != nil {
			t.Fatal(err)
		}
		l.Keep()
		time.Sleep(20*time.Second - 200*time.Millisecond) // Keep renews 200 ms from now
		db.fails = 2
		go func() { _, _ = l.Renew(t.Context()) }()
		time.Sleep(100 * time.Millisecond)
		if _, err := l.Release(t.Context()); !errors.Is(err, headgate.ErrUnavailable) {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		if d, err := limiter.Peek(t.Context(), "k", limit); err != nil || d.Remaining != 4 {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

// TestLeaseOfAFailingStore: what was not taken needs no release.
func TestLeaseOfAFailingStore(t *testing.T) {
	db := memory.New()
	limiter := headgate.New(db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := limiter.Acquire(t.Context(), "k", headgate.Concurrent(1))
	if !errors.Is(err, headgate.ErrUnavailable) || !l.Decision.Allowed {
		t.Fatalf("%+v, %v", l.Decision, err)
	}
	l.Keep()
	if ended, err := l.Release(t.Context()); ended || err != nil {
		t.Errorf("release: %t, %v", ended, err)
	}
}

func TestReservationCommit(t *testing.T) {
	now := time.UnixMicro(1_767_225_600_000_000)
	limit := headgate.PerMinute(60).WithBurst(100) // one a second
	for _, c := range []struct {
		name     string
		after    time.Duration
		estimate int64
		cost     []int64 // of each commit
		want     int64   // remaining at the end, or debt
	}{
		{"less", 0, 50, []int64{20}, 80},
		{"more", 0, 50, []int64{70}, 30},
		{"as estimated", 0, 50, []int64{50}, 50},
		{"nothing", 0, 50, []int64{0}, 100},
		{"twice", 0, 50, []int64{20, 90}, 80},
		{"when half has come back already", 25 * time.Second, 50, []int64{0}, 100},
		{"into debt", 0, 50, []int64{150}, -50},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := now
			limiter := headgate.New(memory.New(), headgate.WithClock(func() time.Time { return at }))
			r, err := limiter.Reserve(t.Context(), "k", limit, c.estimate, 0)
			if err != nil || !r.Decision.Allowed {
				t.Fatalf("%+v, %v", r.Decision, err)
			}
			at = at.Add(c.after)
			for _, n := range c.cost {
				if err := r.Commit(t.Context(), n); err != nil {
					t.Fatal(err)
				}
			}
			d, err := limiter.Peek(t.Context(), "k", limit)
			if err != nil {
				t.Fatal(err)
			}
			if d.Remaining != max(c.want, 0) || c.want < 0 && d.RetryAfter != time.Duration(1-c.want)*time.Second {
				t.Errorf("%+v, want remaining %d", d, c.want)
			}
		})
	}
	r := headgate.Reservation{}
	if err := r.Commit(t.Context(), -1); !errors.Is(err, headgate.ErrInvalidCost) {
		t.Errorf("a negative cost: %v", err)
	}
}
