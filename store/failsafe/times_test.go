package failsafe_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/failsafe"
)

// timer is a store that records key times.
type timer struct {
	fake

	times func(context.Context, store.Op) (store.Times, error)
}

func (s *timer) Do(ctx context.Context, b *store.Batch) {
	if len(b.Ops) == 0 { // of Validate
		return
	}
	times, err := s.times(ctx, b.Ops[0])
	b.Created, b.Changed, b.Recorded, b.Groups[0].Err = times.Created, times.Changed, err == nil, err
}

var timed = store.Op{Key: "k", Scope: "s", Rule: headgate.PerHour(1).Rule()}

func TestKeyTimes(t *testing.T) {
	want := store.Times{Created: time.UnixMicro(1), Changed: time.UnixMicro(2)}
	inner := &timer{times: func(_ context.Context, op store.Op) (store.Times, error) {
		if op.Key != timed.Key || op.Scope != timed.Scope || op.Rule.Limit != 1 {
			t.Errorf("asked for %+v", op)
		}
		return want, nil
	}}
	s := failsafe.New(inner, failsafe.Options{})
	if got, err := store.KeyTimes(t.Context(), s, timed); got != want || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := store.KeyTimes(t.Context(), s, store.Op{Rule: headgate.PerHour(-1).Rule()}); !errors.Is(err, store.ErrInvalidLimit) {
		t.Errorf("invalid limit: %v", err)
	}
	if _, err := store.KeyTimes(t.Context(), failsafe.New(nil, failsafe.Options{}), timed); !errors.Is(err, store.ErrNoStore) {
		t.Errorf("no store: %v", err)
	}
}

// A store without times is no failing store.
func TestNoKeyTimes(t *testing.T) {
	without := &timer{times: func(context.Context, store.Op) (store.Times, error) {
		return store.Times{}, store.ErrNoKeyTimes
	}}
	for _, inner := range []store.Store{new(fake), without} {
		s := failsafe.New(inner, failsafe.Options{Breaker: failsafe.Breaker{Failures: 1}})
		for range 5 {
			if _, err := store.KeyTimes(t.Context(), s, timed); !errors.Is(err, store.ErrNoKeyTimes) || errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%T: %v", inner, err)
			}
		}
		if stats := s.Stats(); stats.State != failsafe.Closed || stats.Failures != 0 {
			t.Errorf("%T: %+v", inner, stats)
		}
	}
}

// A store that does not answer is given up, and then not asked.
func TestKeyTimesOfAStalledStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		inner := &timer{times: func(ctx context.Context, _ store.Op) (store.Times, error) {
			calls++
			<-ctx.Done()
			return store.Times{Created: time.UnixMicro(1)}, ctx.Err()
		}}
		s := failsafe.New(inner, failsafe.Options{Timeout: 50 * time.Millisecond, Breaker: failsafe.Breaker{Failures: 1}})
		began := time.Now()
		got, err := store.KeyTimes(t.Context(), s, timed)
		if !errors.Is(err, failsafe.ErrTimeout) || got != (store.Times{}) || time.Since(began) > 50*time.Millisecond {
			t.Errorf("%v, %v after %s", got, err, time.Since(began))
		}
		synctest.Wait()
		if _, err := store.KeyTimes(t.Context(), s, timed); !errors.Is(err, failsafe.ErrOpen) || calls != 1 {
			t.Errorf("%v after %d calls", err, calls)
		}
	})
}
