package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

func leaseCases() []testCase {
	return []testCase{
		{"LeasesEndOnceAndByThemselves", leasesEnd},
		{"LeasesAreAllOrNothingWithRates", leasesWithRates},
		{"LeasesLookedAtWithTakes", leasesLookedAt},
		{"ConcurrentHoldersNeverExceedTheLimit", concurrentHolders},
	}
}

// release and renew return ops about the lease of d.
func release(op store.Op, d store.Decision) store.Op {
	op.Kind, op.Lease = store.KindRelease, d.Lease
	return op
}

func renew(op store.Op, d store.Decision) store.Op {
	op.Kind, op.Lease = store.KindRenew, d.Lease
	return op
}

// leasesEnd: a released lease is free at once and only once, a renewed one lasts, and
// one left alone ends when its time is over, not before.
func leasesEnd(s *session) {
	limit := headgate.Concurrent(2).WithLease(10 * time.Second)
	first, other := s.take(at(0, limit)), s.take(at(0, limit))
	if first.Lease == 0 || first.Lease == other.Lease {
		s.Fatalf("two leases: %s and %s", show(first), show(other))
	}
	if d := s.take(at(ms, limit)); d.Allowed || d.RetryAfter <= 0 || d.Lease != 0 {
		s.Errorf("a third of two: %s", show(d))
	}
	for i, want := range []int64{1, 0} {
		if d := s.take(release(at(2*ms, limit), first)); !d.Allowed || d.Granted != want || d.Remaining != 1 {
			s.Errorf("release number %d: %s", i+1, show(d))
		}
	}
	renewed := s.take(renew(at(5*second, limit), other))
	if !renewed.Allowed || renewed.Lease == 0 || renewed.Lease == other.Lease {
		s.Errorf("renewal: %s", show(renewed))
	}
	if d := s.take(renew(at(5*second, limit), other)); d.Allowed || d.Reason != store.ReasonExpired {
		s.Errorf("renewal of what was renewed: %s", show(d))
	}
	if d := s.take(cost(at(12*second, limit), 2)); d.Allowed {
		s.Errorf("a renewed lease ended as if it were not: %s", show(d))
	}
	if d := s.take(cost(at(16*second, limit), 2)); !d.Allowed {
		s.Errorf("a lease that is not renewed continues: %s", show(d))
	}
	if d := s.take(release(at(16*second, limit), renewed)); d.Granted != 0 || d.Remaining != 0 {
		s.Errorf("release of what has ended: %s", show(d))
	}
	rate := headgate.PerMinute(5)
	s.take(at(17*second, rate))
	if d := s.take(release(at(17*second, rate), first)); d.Granted != 0 || d.Remaining != 4 {
		s.Errorf("release of a rate: %s", show(d))
	}
	if d := s.take(renew(at(17*second, rate), first)); d.Allowed || d.Remaining != 4 {
		s.Errorf("renewal of a rate: %s", show(d))
	}
}

// leasesWithRates: if one of the two refuses, the other has taken nothing.
func leasesWithRates(s *session) {
	rate, places := headgate.PerHour(3).WithAlgorithm(store.FixedWindow), headgate.Concurrent(2)
	both := func(after int64) []store.Op {
		a, b := at(after, rate), at(after, places)
		a.Scope, b.Scope = "rate", "places"
		return []store.Op{a, b}
	}
	for i, want := range []bool{true, true, false} {
		if d := s.do(store.AllOrNothing, both(int64(i)*ms)...); d[0].Allowed && d[1].Allowed != want {
			s.Errorf("request %d: %s, %s", i, show(d[0]), show(d[1]))
		}
	}
	rateOp := both(4 * ms)[0]
	if d := s.take(kind(rateOp, store.KindPeek)); d.Remaining != 1 {
		s.Errorf("no place was free, and yet the rate was charged: %s", show(d))
	}
	s.take(rateOp)
	placeOp := both(5 * ms)[1]
	s.take(kind(placeOp, store.KindReset))
	if d := s.do(store.AllOrNothing, both(6*ms)...); d[0].Allowed || d[1].Lease != 0 {
		s.Errorf("the rate refused, and yet there is a lease: %s", show(d[1]))
	}
	if d := s.take(kind(placeOp, store.KindPeek)); d.Remaining != 2 {
		s.Errorf("the rate refused, and yet a place is taken: %s", show(d))
	}
}

// leasesLookedAt: peeking at a slot does not take it, and if no slot is free, the peek
// refuses the take next to it.
func leasesLookedAt(s *session) {
	rate, place := at(0, headgate.PerHour(5).WithAlgorithm(store.FixedWindow)), at(0, headgate.Concurrent(1))
	rate.Scope, place.Scope = "rate", "place"
	look := kind(place, store.KindPeek)
	for i := range 3 {
		if d := s.do(store.AllOrNothing, look, rate); !d[0].Allowed || d[0].Lease != 0 || d[0].Remaining != 1 || !d[1].Allowed || d[1].Granted != 1 {
			s.Errorf("look %d: %s, %s", i, show(d[0]), show(d[1]))
		}
	}
	s.take(place)
	if d := s.do(store.AllOrNothing, look, rate); d[0].Allowed || d[1].Granted != 0 || d[1].Remaining != 2 {
		s.Errorf("with a slot that is taken: %s, %s", show(d[0]), show(d[1]))
	}
}

// concurrentHolders: the holders of a lease, counted by the test, never exceed the
// limit, and in the end there are none.
func concurrentHolders(s *session) {
	const most = 5
	op := at(0, headgate.Concurrent(most).WithLease(time.Hour))
	s.stamp(&op)
	var inside, admitted atomic.Int64
	ctx := context.Background()
	err := together(func(int) error {
		for range 60 {
			d, err := store.Execute(ctx, s.store, op)
			if err != nil || !d.Allowed {
				if err != nil {
					return err
				}
				continue
			}
			admitted.Add(1)
			if n := inside.Add(1); n > most {
				return fmt.Errorf("%d are inside, %d may be", n, most)
			}
			if rand.IntN(2) == 0 {
				if d, err = store.Execute(ctx, s.store, renew(op, d)); err != nil || !d.Allowed {
					return fmt.Errorf("renewal: %s, %w", show(d), err)
				}
			}
			inside.Add(-1)
			if d, err := store.Execute(ctx, s.store, release(op, d)); err != nil || d.Granted != 1 {
				return fmt.Errorf("release: %s, %w", show(d), err)
			}
		}
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	d, err := store.Execute(ctx, s.store, kind(op, store.KindPeek))
	if err != nil || d.Remaining != most || admitted.Load() == 0 {
		s.Errorf("in the end: %s, %v, %d admitted", show(d), err, admitted.Load())
	}
}
