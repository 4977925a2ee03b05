package algorithm

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// longCorners are traces of numbers, stored with the vectors, that need no verdict.
func longCorners(t *testing.T, a headgate.Algorithm) []vector {
	t.Helper()
	switch a {
	case headgate.Distinct: // has tests of its own in distinct_test.go
	case headgate.LeakyBucket:
		r := record(t, "corner: credit that ends before its turn does not help", headgate.PerSecond(1).Using(a).Burst(3))
		r.step(t0, Request{headgate.Take, 3, 0, 0, 0, 0})
		r.step(t0, Request{headgate.Grant, 2, time.Second, 0, 0, 0})
		r.step(t0, Request{headgate.Reserve, 1, time.Second, 0, 0, 0})
		r.step(t0, Request{headgate.Reserve, 5, time.Second, 0, 0, 0})
		return []vector{r.vector}
	case headgate.TokenBucket:
		r := record(t, "corner: a refund of less than a tick writes nothing", headgate.Per(headgate.MaxLimit-1, 365*24*time.Hour))
		r.step(t0, Request{headgate.Take, 5, 0, 0, 0, 0})
		r.step(t0, Request{headgate.Refund, 5, time.Microsecond, 0, 0, 0})
		r.step(t0+1_000_000, Request{headgate.Refund, 5, time.Second, 0, 0, 0})
		q := record(t, "corner: usage outlives a limit of 0", headgate.PerMinute(8))
		q.step(t0, Request{headgate.Take, 5, 0, 0, 0, 0})
		q.change(headgate.PerMinute(0))
		q.step(t0, Request{headgate.Peek, 1, 0, 0, 0, 0})
		q.change(headgate.PerHour(8))
		q.step(t0, Request{headgate.Peek, 3, 0, 0, 0, 0})
		q.step(t0, Request{headgate.Take, 4, 0, 0, 0, 0})
		b := record(t, "corner: a booking waits for a debt at its limit", headgate.PerMinute(8))
		b.step(t0, Request{headgate.Charge, huge, 0, 0, 0, 0})
		b.step(t0, Request{headgate.Reserve, 1, micros(huge), 0, 0, 0})
		b.step(t0, Request{headgate.Reserve, 1, 0, 0, 0, 0})
		return []vector{r.vector, q.vector, b.vector}
	case headgate.SlidingLog:
		r := record(t, "corner: entries of 1023 and more, a log that is full", headgate.PerDay(5000).Using(a))
		r.step(t0, Request{headgate.Take, 1023, 0, 0, 0, 0})
		r.step(t0+1, Request{headgate.Take, 1022, 0, 0, 0, 0})
		r.step(t0+2, Request{headgate.Take, 2000, 0, 0, 0, 0})
		r.step(t0+2, Request{headgate.Refund, 1, 0, 0, 0, 0})
		r.step(t0+3, Request{headgate.Refund, 1, 24*time.Hour - 3*time.Microsecond, 0, 0, 0})
		r.step(t0+4, Request{headgate.Charge, huge, 0, 0, 0, 0})
		r.step(t0+5, Request{headgate.Charge, 7, 0, 0, 0, 0})
		r.step(t0+5, Request{headgate.Take, 1, 0, 0, 0, 0})
		return []vector{r.vector}
	case headgate.SlidingBuckets:
		r := record(t, "corner: a clock that goes back behind what has faded", headgate.PerMinute(6).Using(a).Buckets(6, headgate.EdgeWeighted))
		r.step(t0+5_000_000, Request{headgate.Take, 6, 0, 0, 0, 0})
		r.step(t0+69_000_000, Request{headgate.Charge, 1, 0, 0, 0, 0})
		r.step(t0+61_000_000, Request{headgate.Refund, 6, 0, 0, 0, 0})
		return []vector{r.vector}
	case headgate.Concurrency:
		return []vector{leases(t), longLeases(t)}
	case headgate.FixedWindow, headgate.SlidingWindow:
	}
	return nil
}

// leases is a history of leases: three in one microsecond, renewed and released in
// another order, twice, too late, and after the lease length has changed.
func leases(t *testing.T) vector {
	t.Helper()
	r := record(t, "corner: leases end in any order, once each", headgate.Concurrent(3).Lease(time.Second))
	a := r.step(t0, Request{headgate.Take, 1, 0, 0, 0, 0}).Lease
	b := r.step(t0, Request{headgate.Take, 1, 0, 0, 0, 0}).Lease
	c := r.step(t0, Request{headgate.Take, 1, 0, 0, 0, 0}).Lease
	r.step(t0, Request{headgate.Take, 1, 0, 0, 0, 0})
	r.step(t0+10, Request{headgate.Release, 1, 0, b, 0, 0})
	r.step(t0+10, Request{headgate.Release, 1, 0, b, 0, 0})
	r.step(t0+20, Request{headgate.Renew, 0, 0, a, 0, 0})
	a = r.step(t0+20, Request{headgate.Renew, 1, 0, a, 0, 0}).Lease
	d := r.step(t0+20, Request{headgate.Take, 1, 0, 0, 0, 0}).Lease
	r.step(t0+1_000_001, Request{headgate.Renew, 1, 0, c, 0, 0})
	r.step(t0+1_000_002, Request{headgate.Renew, 1, 0, c, 0, 0})
	r.step(t0+1_000_002, Request{headgate.Release, 1, 0, c, 0, 0})
	r.step(t0+1_000_010, Request{headgate.Release, 1, 0, d, 0, 0})
	r.change(headgate.Concurrent(1).Lease(time.Minute))
	r.step(t0+1_000_010, Request{headgate.Take, 1, 0, 0, 0, 0})
	a = r.step(t0+1_000_020, Request{headgate.Renew, 1, 0, a, 0, 0}).Lease
	r.step(t0+5, Request{headgate.Release, 1, 0, a, 0, 0})
	r.step(t0+5, Request{headgate.Take, 1, 0, 0, 0, 0})
	return r.vector
}

// longLeases has leases larger than one word of an entry can hold.
func longLeases(t *testing.T) vector {
	t.Helper()
	r := record(t, "corner: leases of 1023 and more, in part", headgate.Concurrent(5000))
	a := r.step(t0, Request{headgate.Take, 1500, 0, 0, 0, 0}).Lease
	b := r.step(t0+1, Request{headgate.Take, 1022, 0, 0, 0, 0}).Lease
	c := r.step(t0+2, Request{headgate.Take, 2000, 0, 0, 0, 0}).Lease
	r.step(t0+3, Request{headgate.Release, 478, 0, a, 0, 0}) // 1022 are left, one word
	r.step(t0+4, Request{headgate.Release, 1, 0, c, 0, 0})
	r.step(t0+5, Request{headgate.Renew, 500, 0, a, 0, 0})
	r.step(t0+6, Request{headgate.Release, huge, 0, b, 0, 0})
	r.step(t0+7, Request{headgate.Release, huge, 0, c, 0, 0})
	r.step(t0+8, Request{headgate.Release, 600, 0, a, 0, 0})
	r.step(t0+8, Request{headgate.Take, 4501, 0, 0, 0, 0})
	return r.vector
}
