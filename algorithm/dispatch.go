package algorithm

import "github.com/headgate/headgate"

// available returns how many tokens would pass at once. A negative number is debt.
func available(r *headgate.Rule, s *State, now int64) int64 {
	switch r.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		return bucketAvailable(r, s, now)
	case headgate.FixedWindow, headgate.Distinct:
		return fixedAvailable(r, s, now)
	case headgate.SlidingLog, headgate.Concurrency:
		return logAvailable(r, s, now)
	case headgate.SlidingWindow:
		return slidingAvailable(r, s, now)
	case headgate.SlidingBuckets:
		return bucketsAvailable(r, s, now)
	}
	return 0
}

// remaining returns how many requests of cost 1 would pass in a row.
func remaining(r *headgate.Rule, s *State, now int64) int64 {
	if r.Algorithm == headgate.LeakyBucket {
		used, _ := bucketUsed(r, s, now)
		return leakyRemaining(r, used)
	}
	return max(available(r, s, now), 0)
}

// add uses n tokens at now, whether they are available or not.
func add(r *headgate.Rule, s *State, now, n int64) {
	switch r.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		bucketAdd(r, s, now, n)
	case headgate.FixedWindow:
		fixedAdd(r, s, now, n)
	case headgate.Distinct: // adds values, in show
	case headgate.SlidingLog:
		logAdd(r, s, now, n)
	case headgate.SlidingWindow:
		slidingAdd(r, s, now, n)
	case headgate.SlidingBuckets:
		bucketsAdd(r, s, now, n)
	case headgate.Concurrency:
		leaseAdd(r, s, now, n)
	}
}

// sub returns n tokens and reports whether that changed the state. left is how much
// longer the take would have counted, or 0 for a take made just now.
func sub(r *headgate.Rule, s *State, now, n, left int64) bool {
	switch r.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		return bucketSub(r, s, now, n, left)
	case headgate.FixedWindow:
		return fixedSub(r, s, now, n, left)
	case headgate.SlidingLog:
		return logSub(r, s, now, n, left)
	case headgate.SlidingWindow:
		return slidingSub(r, s, now, n, left)
	case headgate.SlidingBuckets:
		return bucketsSub(r, s, now, n, left)
	case headgate.Concurrency:
		return leaseSub(r, s, now, n, left)
	case headgate.Distinct: // takes values back, in takeBack
	}
	return false
}

// fits returns the earliest time, from now on, at which n will be available. n must not
// exceed the most that can ever be available.
func fits(r *headgate.Rule, s *State, now, n int64) int64 {
	if available(r, s, now) >= n {
		return now
	}
	switch r.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		return bucketFits(r, s, now, n)
	case headgate.FixedWindow, headgate.Distinct:
		return fixedFits(s)
	case headgate.SlidingLog, headgate.Concurrency:
		return logFits(r, s, now, n)
	case headgate.SlidingWindow:
		return slidingFits(r, s, now, n)
	case headgate.SlidingBuckets:
		return bucketsFits(r, s, now, n)
	}
	return never
}

// freshAt returns when the state equals that of an unused key.
func freshAt(r *headgate.Rule, s *State, now int64) int64 {
	at := limitFreshAt(r, s, now)
	if creditAt(s, now) > 0 {
		at = min(max(at, s.Until), maxInteger)
	}
	return at
}

// limitFreshAt is freshAt without credit.
func limitFreshAt(r *headgate.Rule, s *State, now int64) int64 {
	at := now
	switch r.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		at = bucketFresh(r, s, now)
	case headgate.FixedWindow, headgate.Distinct:
		at = fixedFresh(r, s, now)
	case headgate.SlidingLog:
		at = logFresh(r, s, now)
	case headgate.SlidingWindow:
		at = slidingFresh(r, s, now)
	case headgate.SlidingBuckets:
		at = bucketsFresh(r, s, now)
	case headgate.Concurrency:
		at = leaseFresh(r, s, now)
	}
	return min(max(at, now), maxInteger)
}

// turn returns how long an admitted request has to wait for its turn.
func turn(r *headgate.Rule, s *State, now int64) int64 {
	if r.Algorithm == headgate.LeakyBucket {
		return leakyTurn(r, s, now)
	}
	return 0
}
