package algorithm

import (
	"github.com/headgate/headgate/store"
)

// available returns how many tokens would pass at once. A negative number is debt.
func available(r *store.Rule, s *State, now int64) int64 {
	switch r.Algorithm {
	case store.TokenBucket, store.LeakyBucket:
		return bucketAvailable(r, s, now)
	case store.FixedWindow, store.Distinct:
		return fixedAvailable(r, s, now)
	case store.SlidingLog, store.Concurrency:
		return logAvailable(r, s, now)
	case store.SlidingWindow:
		return slidingAvailable(r, s, now)
	case store.SlidingBuckets:
		return bucketsAvailable(r, s, now)
	}
	return 0
}

// remaining returns how many requests of cost 1 would pass in a row.
func remaining(r *store.Rule, s *State, now int64) int64 {
	if r.Algorithm == store.LeakyBucket {
		used, _ := bucketUsed(r, s, now)
		return leakyRemaining(r, used)
	}
	return max(available(r, s, now), 0)
}

// add uses n tokens at now, whether they are available or not.
func add(r *store.Rule, s *State, now, n int64) {
	switch r.Algorithm {
	case store.TokenBucket, store.LeakyBucket:
		bucketAdd(r, s, now, n)
	case store.FixedWindow:
		fixedAdd(r, s, now, n)
	case store.Distinct: // adds values, in show
	case store.SlidingLog:
		logAdd(r, s, now, n)
	case store.SlidingWindow:
		slidingAdd(r, s, now, n)
	case store.SlidingBuckets:
		bucketsAdd(r, s, now, n)
	case store.Concurrency:
		leaseAdd(r, s, now, n)
	}
}

// sub returns n tokens and reports whether that changed the state. left is how much
// longer the take would have counted, or 0 for a take made just now.
func sub(r *store.Rule, s *State, now, n, left int64) bool {
	switch r.Algorithm {
	case store.TokenBucket, store.LeakyBucket:
		return bucketSub(r, s, now, n, left)
	case store.FixedWindow:
		return fixedSub(r, s, now, n, left)
	case store.SlidingLog:
		return logSub(r, s, now, n, left)
	case store.SlidingWindow:
		return slidingSub(r, s, now, n, left)
	case store.SlidingBuckets:
		return bucketsSub(r, s, now, n, left)
	case store.Concurrency:
		return leaseSub(r, s, now, n, left)
	case store.Distinct: // takes values back, in takeBack
	}
	return false
}

// fits returns the earliest time, from now on, at which n will be available. n must not
// exceed the most that can ever be available.
func fits(r *store.Rule, s *State, now, n int64) int64 {
	if available(r, s, now) >= n {
		return now
	}
	switch r.Algorithm {
	case store.TokenBucket, store.LeakyBucket:
		return bucketFits(r, s, now, n)
	case store.FixedWindow, store.Distinct:
		return fixedFits(s)
	case store.SlidingLog, store.Concurrency:
		return logFits(r, s, now, n)
	case store.SlidingWindow:
		return slidingFits(r, s, now, n)
	case store.SlidingBuckets:
		return bucketsFits(r, s, now, n)
	}
	return never
}

// freshAt returns when the state equals that of an unused key.
func freshAt(r *store.Rule, s *State, now int64) int64 {
	at := limitFreshAt(r, s, now)
	if creditAt(s, now) > 0 {
		at = min(max(at, s.Until), maxInteger)
	}
	return at
}

// limitFreshAt is freshAt without credit.
func limitFreshAt(r *store.Rule, s *State, now int64) int64 {
	at := now
	switch r.Algorithm {
	case store.TokenBucket, store.LeakyBucket:
		at = bucketFresh(r, s, now)
	case store.FixedWindow, store.Distinct:
		at = fixedFresh(r, s, now)
	case store.SlidingLog:
		at = logFresh(r, s, now)
	case store.SlidingWindow:
		at = slidingFresh(r, s, now)
	case store.SlidingBuckets:
		at = bucketsFresh(r, s, now)
	case store.Concurrency:
		at = leaseFresh(r, s, now)
	}
	return min(max(at, now), maxInteger)
}

// turn returns how long an admitted request has to wait for its turn.
func turn(r *store.Rule, s *State, now int64) int64 {
	if r.Algorithm == store.LeakyBucket {
		return leakyTurn(r, s, now)
	}
	return 0
}
