package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

func concurrentCases() []testCase {
	return []testCase{
		{"ConcurrentTakesAdmitExactlyTheLimit", concurrentTakes},
		{"ConcurrentBatchesAdmitExactlyTheLimit", concurrentBatches},
		{"TestT34_T37_NoUpdateIsLost", noLostUpdates},
	}
}

const goroutines = 16

// together runs f in all goroutines at once and returns the first error.
func together(f func(worker int) error) error {
	var wg sync.WaitGroup
	errs := make(chan error, goroutines)
	start := make(chan struct{})
	for w := range goroutines {
		wg.Go(func() {
			<-start
			if err := f(w); err != nil {
				errs <- err
			}
		})
	}
	close(start)
	wg.Wait()
	close(errs)
	return <-errs
}

// concurrentTakes: if 16 goroutines request one key 1,600 times in total, exactly the
// limit is admitted, and each admission has a different remaining number: they have an
// order.
func concurrentTakes(s *session) {
	const limited = 1000
	for i, limit := range everyAlgorithm(limited) {
		if limit.Algorithm() <= store.LeakyBucket {
			limit = headgate.PerDay(limited).WithAlgorithm(limit.Algorithm()) // nothing refills during the test
		}
		op := key(at(day/2, limit), string(rune('a'+i)))
		s.stamp(&op)
		seen := make([]atomic.Int32, limited)
		var admitted atomic.Int64
		err := together(func(int) error {
			for range 100 {
				d, err := store.Execute(context.Background(), s.store, op)
				if err != nil {
					return err
				}
				if !d.Allowed {
					continue
				}
				admitted.Add(1)
				if d.Remaining < 0 || d.Remaining >= limited || seen[d.Remaining].Add(1) != 1 {
					return fmt.Errorf("%s: two admissions left %d", limit, d.Remaining)
				}
			}
			return nil
		})
		if err != nil {
			s.Error(err)
		}
		if n := admitted.Load(); n != limited {
			s.Errorf("%s admitted %d of 1600 concurrent takes", limit, n)
		}
	}
}

// concurrentBatches takes two keys at once, in both orders, so that a store that locks
// them one by one would deadlock or take only one.
func concurrentBatches(s *session) {
	const limited = 300
	for _, a := range store.Algorithms() {
		limit := headgate.PerDay(limited).WithAlgorithm(a)
		x, y := key(at(day/2, limit), "x"), key(at(day/2, limit), "y")
		s.stamp(&x)
		s.stamp(&y)
		var admitted atomic.Int64
		err := together(func(w int) error {
			ops := []store.Op{x, y}
			if w%2 == 1 {
				ops[0], ops[1] = y, x
			}
			out := make([]store.Decision, 2)
			for range 40 {
				if err := store.ExecuteAll(context.Background(), s.store, ops, out, store.AllOrNothing); err != nil {
					return err
				}
				if out[0].Allowed && out[1].Allowed {
					admitted.Add(1)
				}
			}
			return nil
		})
		if err != nil {
			s.Error(err)
		}
		if n := admitted.Load(); n != limited {
			s.Errorf("%s admitted %d pairs of 640", limit, n)
		}
	}
}

// noLostUpdates charges and refunds a few keys from all goroutines: the sums must be
// right in the end.
func noLostUpdates(s *session) {
	const keys, rounds = 10, 20
	for _, a := range store.Algorithms() {
		limit := headgate.PerDay(100_000).WithAlgorithm(a)
		now := at(day/2, limit)
		s.stamp(&now)
		err := together(func(w int) error {
			for i := range keys * rounds {
				op := key(now, fmt.Sprintf("key %d", (i+w)%keys))
				for _, step := range []store.Op{cost(kind(op, store.KindCharge), 5), cost(kind(op, store.KindRefund), 2), cost(op, 1)} {
					if _, err := store.Execute(context.Background(), s.store, step); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			s.Fatal(err)
		}
		want := int64(100_000 - goroutines*rounds*(5-2+1))
		for i := range keys {
			d, err := store.Execute(context.Background(), s.store, key(kind(now, store.KindPeek), fmt.Sprintf("key %d", i)))
			if err != nil || d.Remaining != want {
				s.Fatalf("%s, key %d: remaining %d, want %d (%v)", a, i, d.Remaining, want, err)
			}
		}
	}
}
