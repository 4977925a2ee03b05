package headgate_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// inBubble runs f where time passes only while all goroutines wait.
func inBubble(t *testing.T, f func(t *testing.T, l *headgate.Limiter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.WithClock(time.Now))
		defer store.Close()
		f(t, headgate.New(store))
	})
}

// waited returns how long f took and what it returned.
func waited(f func() error) (time.Duration, error) {
	start := time.Now()
	err := f()
	return time.Since(start), err
}

func TestWaitTakesItsTurn(t *testing.T) {
	perSecond := headgate.PerSecond(1).WithBurst(2)
	tests := []struct {
		name  string
		limit headgate.Limit
		n     int64
		want  []time.Duration // how long the first, second, … call waits
	}{
		{"token bucket", perSecond, 1, []time.Duration{0, 0, time.Second, time.Second}},
		{"token bucket, two at a time", perSecond, 2, []time.Duration{0, 2 * time.Second, 2 * time.Second}},
		{"leaky bucket", perSecond.WithAlgorithm(headgate.LeakyBucket), 1, []time.Duration{0, time.Second, time.Second, time.Second}},
		{"sliding log", headgate.PerMinute(2).WithAlgorithm(headgate.SlidingLog), 1, []time.Duration{0, 0, time.Minute, 0, time.Minute}},
		// The bubble's time begins at a full minute.
		{"fixed window", headgate.PerMinute(1).WithAlgorithm(headgate.FixedWindow), 1, []time.Duration{0, time.Minute, time.Minute}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, l *headgate.Limiter) {
				for i, want := range tt.want {
					got, err := waited(func() error { return l.WaitN(t.Context(), "k", tt.limit, tt.n) })
					if err != nil || got != want {
						t.Errorf("call %d waited %v, %v; want %v", i+1, got, err, want)
					}
				}
			})
		})
	}
}

// TestWaitIsFirstInFirstOut: waiters of a bucket go ahead in the order in which
// they asked, one a second.
func TestWaitIsFirstInFirstOut(t *testing.T) {
	inBubble(t, func(t *testing.T, l *headgate.Limiter) {
		var mu sync.Mutex
		var order []int
		var at []time.Duration
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				if err := l.Wait(t.Context(), "k", headgate.PerSecond(1)); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order, at = append(order, i), append(at, time.Since(start))
			})
			synctest.Wait() // until it waits its turn
		}
		wg.Wait()
		if !slices.Equal(order, []int{0, 1, 2, 3, 4, 5}) || at[5] != 5*time.Second {
			t.Errorf("went ahead in the order %v at %v", order, at)
		}
	})
}

// TestWaitRefusesAtOnce what cannot be in time: it takes nothing.
func TestWaitRefusesAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, l *headgate.Limiter) {
		limit := headgate.PerMinute(1)
		var limited *headgate.LimitedError
		took, err := waited(func() error { return l.WaitN(t.Context(), "k", limit, 2) })
		if !errors.As(err, &limited) || limited.Decision.RetryAfter != headgate.Never || took != 0 {
			t.Errorf("more than the burst: %v after %v", err, took)
		}
		if err := l.Wait(t.Context(), "k", limit); err != nil {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(t.Context(), 59*time.Second)
		defer cancel()
		took, err = waited(func() error { return l.Wait(soon, "k", limit) })
		if !errors.As(err, &limited) || limited.Decision.RetryAfter != time.Minute || took != 0 {
			t.Errorf("a second later than the deadline: %v after %v", err, took)
		}
		later, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		// At the deadline itself both the timer and the context are due.
		took, err = waited(func() error { return l.Wait(later, "k", limit) })
		if took != time.Minute || err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("at the deadline: %v after %v", err, took)
		}
	})
}

// TestWaitForAFullQueue: a leaky bucket whose queue is full has a place later,
// which is waited for if the turn then comes in time.
func TestWaitForAFullQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, l *headgate.Limiter) {
		limit := headgate.PerSecond(1).WithAlgorithm(headgate.LeakyBucket).WithBurst(2)
		if _, err := l.AllowN(t.Context(), "k", limit, 2); err != nil {
			t.Fatal(err)
		}
		early, cancel := context.WithTimeout(t.Context(), 1900*time.Millisecond)
		defer cancel()
		took, err := waited(func() error { return l.Wait(early, "k", limit) })
		var limited *headgate.LimitedError
		if !errors.As(err, &limited) || took != 0 {
			t.Errorf("with 1.9s: %v after %v", err, took)
		}
		enough, cancel := context.WithTimeout(t.Context(), 2100*time.Millisecond)
		defer cancel()
		took, err = waited(func() error { return l.Wait(enough, "k", limit) })
		if err != nil || took != 2*time.Second {
			t.Errorf("with 2.1s: %v after %v", err, took)
		}
	})
}

// TestCancelledWaitFreesItsPlace: the next waiter gets the token that the one
// who gave up would have had.
func TestCancelledWaitFreesItsPlace(t *testing.T) {
	inBubble(t, func(t *testing.T, l *headgate.Limiter) {
		limit := headgate.PerSecond(1)
		if err := l.Wait(t.Context(), "k", limit); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error)
		go func() { gaveUp <- l.Wait(ctx, "k", limit) }()
		synctest.Wait()
		time.Sleep(300 * time.Millisecond)
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("the cancelled one: %v", err)
		}
		took, err := waited(func() error { return l.Wait(t.Context(), "k", limit) })
		if err != nil || took != 700*time.Millisecond {
			t.Errorf("the next one waited %v, %v; want 700ms", took, err)
		}
		done, err := waited(func() error { return l.Wait(ctx, "k", limit) })
		if !errors.Is(err, context.Canceled) || done != 0 {
			t.Errorf("with a context that is done: %v after %v", err, done)
		}
	})
}

// TestT02_CancelGivesBackOnce what time has not given back already.
func TestT02_CancelGivesBackOnce(t *testing.T) {
	for _, a := range store.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, l *headgate.Limiter) {
				ctx, limit := t.Context(), headgate.PerMinute(6).WithAlgorithm(a)
				r, err := l.Reserve(ctx, "k", limit, 4, 0)
				if err != nil || !r.Decision.Allowed || r.Decision.Delay != 0 {
					t.Fatalf("reserved %+v, %v", r.Decision, err)
				}
				time.Sleep(10 * time.Second)
				for range 3 {
					if err := r.Cancel(ctx); err != nil {
						t.Fatal(err)
					}
				}
				d, err := l.PeekN(ctx, "k", limit, 6)
				if err != nil || d.Remaining != 6 {
					t.Errorf("after the cancel: %+v, %v", d, err)
				}
			})
		})
	}
}

// TestT02_CancelIsNotARefill: a cancel long after the take, when its tokens have
// come back by themselves, does not give them to others' debts.
func TestT02_CancelIsNotARefill(t *testing.T) {
	inBubble(t, func(t *testing.T, l *headgate.Limiter) {
		ctx, limit := t.Context(), headgate.PerMinute(6)
		r, err := l.Reserve(ctx, "k", limit, 6, 0)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, err := l.AllowN(ctx, "k", limit, 6); err != nil {
			t.Fatal(err)
		}
		if err := r.Cancel(ctx); err != nil {
			t.Fatal(err)
		}
		if d, err := l.Allow(ctx, "k", limit); err != nil || d.Allowed {
			t.Errorf("the cancel refilled the bucket: %+v, %v", d, err)
		}
	})
}

func TestReserveBooksAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, l *headgate.Limiter) {
		ctx, limit := t.Context(), headgate.PerSecond(1)
		for i, want := range []time.Duration{0, time.Second, 2 * time.Second} {
			r, err := l.Reserve(ctx, "k", limit, 1, 2*time.Second)
			if err != nil || !r.Decision.Allowed || r.Decision.Delay != want {
				t.Errorf("reservation %d: delay %v, %+v, %v", i+1, r.Decision.Delay, r.Decision, err)
			}
		}
		r, err := l.Reserve(ctx, "k", limit, 1, 2*time.Second)
		if err != nil || r.Decision.Allowed || r.Decision.RetryAfter != time.Second {
			t.Errorf("a booking 3s ahead: %+v, %v", r.Decision, err)
		}
		if err := r.Cancel(ctx); err != nil {
			t.Errorf("cancel of a refusal: %v", err)
		}
	})
	var zero headgate.Reservation
	if err := zero.Cancel(t.Context()); err != nil || zero.Decision.Allowed {
		t.Errorf("the zero Reservation: %v, %v", zero.Decision.Allowed, err)
	}
}
