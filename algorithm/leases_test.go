package algorithm

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// longCorners are traces of numbers, stored with the vectors, that need no verdict.
func longCorners(t *testing.T, a store.Algorithm) []vector {
	t.Helper()
	switch a {
	case store.Distinct: // has tests of its own in distinct_test.go
	case store.LeakyBucket:
		r := record(t, "corner: credit that ends before its turn does not help", headgate.PerSecond(1).WithAlgorithm(a).WithBurst(3))
		r.step(t0, Request{store.KindTake, 3, 0, 0, 0, 0, 0})
		r.step(t0, Request{store.KindGrant, 2, time.Second, 0, 0, 0, 0})
		r.step(t0, Request{store.KindReserve, 1, time.Second, 0, 0, 0, 0})
		r.step(t0, Request{store.KindReserve, 5, time.Second, 0, 0, 0, 0})
		return []vector{r.vector}
	case store.TokenBucket:
		r := record(t, "corner: a refund of less than a tick writes nothing", headgate.Per(store.MaxLimit-1, 365*24*time.Hour))
		r.step(t0, Request{store.KindTake, 5, 0, 0, 0, 0, 0})
		r.step(t0, Request{store.KindRefund, 5, time.Microsecond, 0, 0, 0, 0})
		r.step(t0+1_000_000, Request{store.KindRefund, 5, time.Second, 0, 0, 0, 0})
		q := record(t, "corner: usage outlives a limit of 0", headgate.PerMinute(8))
		q.step(t0, Request{store.KindTake, 5, 0, 0, 0, 0, 0})
		q.change(headgate.PerMinute(0))
		q.step(t0, Request{store.KindPeek, 1, 0, 0, 0, 0, 0})
		q.change(headgate.PerHour(8))
		q.step(t0, Request{store.KindPeek, 3, 0, 0, 0, 0, 0})
		q.step(t0, Request{store.KindTake, 4, 0, 0, 0, 0, 0})
		b := record(t, "corner: a booking waits for a debt at its limit", headgate.PerMinute(8))
		b.step(t0, Request{store.KindCharge, huge, 0, 0, 0, 0, 0})
		b.step(t0, Request{store.KindReserve, 1, micros(huge), 0, 0, 0, 0})
		b.step(t0, Request{store.KindReserve, 1, 0, 0, 0, 0, 0})
		return []vector{r.vector, q.vector, b.vector}
	case store.SlidingLog:
		r := record(t, "corner: entries of 1023 and more, a log that is full", headgate.PerDay(5000).WithAlgorithm(a))
		r.step(t0, Request{store.KindTake, 1023, 0, 0, 0, 0, 0})
		r.step(t0+1, Request{store.KindTake, 1022, 0, 0, 0, 0, 0})
		r.step(t0+2, Request{store.KindTake, 2000, 0, 0, 0, 0, 0})
		r.step(t0+2, Request{store.KindRefund, 1, 0, 0, 0, 0, 0})
		r.step(t0+3, Request{store.KindRefund, 1, 24*time.Hour - 3*time.Microsecond, 0, 0, 0, 0})
		r.step(t0+4, Request{store.KindCharge, huge, 0, 0, 0, 0, 0})
		r.step(t0+5, Request{store.KindCharge, 7, 0, 0, 0, 0, 0})
		r.step(t0+5, Request{store.KindTake, 1, 0, 0, 0, 0, 0})
		return []vector{r.vector}
	case store.SlidingBuckets:
		r := record(t, "corner: a clock that goes back behind what has faded", headgate.PerMinute(6).WithAlgorithm(a).WithBuckets(6, store.EdgeWeighted))
		r.step(t0+5_000_000, Request{store.KindTake, 6, 0, 0, 0, 0, 0})
		r.step(t0+69_000_000, Request{store.KindCharge, 1, 0, 0, 0, 0, 0})
		r.step(t0+61_000_000, Request{store.KindRefund, 6, 0, 0, 0, 0, 0})
		return []vector{r.vector}
	case store.Concurrency:
		return []vector{leases(t), longLeases(t)}
	case store.FixedWindow, store.SlidingWindow:
	}
	return nil
}

// leases is a history of leases: three in one microsecond, renewed and released in
// another order, twice, too late, and after the lease length has changed.
func leases(t *testing.T) vector {
	t.Helper()
	r := record(t, "corner: leases end in any order, once each", headgate.Concurrent(3).WithLease(time.Second))
	a := r.step(t0, Request{store.KindTake, 1, 0, 0, 0, 0, 0}).Lease
	b := r.step(t0, Request{store.KindTake, 1, 0, 0, 0, 0, 0}).Lease
	c := r.step(t0, Request{store.KindTake, 1, 0, 0, 0, 0, 0}).Lease
	r.step(t0, Request{store.KindTake, 1, 0, 0, 0, 0, 0})
	r.step(t0+10, Request{store.KindRelease, 1, 0, b, 0, 0, 0})
	r.step(t0+10, Request{store.KindRelease, 1, 0, b, 0, 0, 0})
	r.step(t0+20, Request{store.KindRenew, 0, 0, a, 0, 0, 0})
	a = r.step(t0+20, Request{store.KindRenew, 1, 0, a, 0, 0, 0}).Lease
	d := r.step(t0+20, Request{store.KindTake, 1, 0, 0, 0, 0, 0}).Lease
	r.step(t0+1_000_001, Request{store.KindRenew, 1, 0, c, 0, 0, 0})
	r.step(t0+1_000_002, Request{store.KindRenew, 1, 0, c, 0, 0, 0})
	r.step(t0+1_000_002, Request{store.KindRelease, 1, 0, c, 0, 0, 0})
	r.step(t0+1_000_010, Request{store.KindRelease, 1, 0, d, 0, 0, 0})
	r.change(headgate.Concurrent(1).WithLease(time.Minute))
	r.step(t0+1_000_010, Request{store.KindTake, 1, 0, 0, 0, 0, 0})
	a = r.step(t0+1_000_020, Request{store.KindRenew, 1, 0, a, 0, 0, 0}).Lease
	r.step(t0+5, Request{store.KindRelease, 1, 0, a, 0, 0, 0})
	r.step(t0+5, Request{store.KindTake, 1, 0, 0, 0, 0, 0})
	return r.vector
}

// longLeases has leases larger than one word of an entry can hold.
func longLeases(t *testing.T) vector {
	t.Helper()
	r := record(t, "corner: leases of 1023 and more, in part", headgate.Concurrent(5000))
	a := r.step(t0, Request{store.KindTake, 1500, 0, 0, 0, 0, 0}).Lease
	b := r.step(t0+1, Request{store.KindTake, 1022, 0, 0, 0, 0, 0}).Lease
	c := r.step(t0+2, Request{store.KindTake, 2000, 0, 0, 0, 0, 0}).Lease
	r.step(t0+3, Request{store.KindRelease, 478, 0, a, 0, 0, 0}) // 1022 are left, one word
	r.step(t0+4, Request{store.KindRelease, 1, 0, c, 0, 0, 0})
	r.step(t0+5, Request{store.KindRenew, 500, 0, a, 0, 0, 0})
	r.step(t0+6, Request{store.KindRelease, huge, 0, b, 0, 0, 0})
	r.step(t0+7, Request{store.KindRelease, huge, 0, c, 0, 0, 0})
	r.step(t0+8, Request{store.KindRelease, 600, 0, a, 0, 0, 0})
	r.step(t0+8, Request{store.KindTake, 4501, 0, 0, 0, 0, 0})
	return r.vector
}
