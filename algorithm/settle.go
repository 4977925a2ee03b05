package algorithm

import (
	"time"

	"github.com/headgate/headgate/store"
)

// mostAhead is how far a clock may be set back, in microseconds, and the states stay as
// they are: clocks are corrected by that much all the time, and two servers may differ by
// it.
const mostAhead = int64(time.Minute / time.Microsecond)

// Settle moves a state that begins after now by more than its longest wait, and by more
// than a minute, to now: what counts in it counts as taken now. It reports whether it did,
// and s must then be written even if the request is refused, or it would be moved again
// and never drain.
//
// Such a state was written while the clock was wrong. It is for stores with a clock of
// their own, before a [Step]; not for times of callers, where one that is late would give
// back what others took. It never makes anything available, as at least that much time
// has really passed.
func Settle(r *store.Rule, s *State, now int64) bool {
	if r.Unlimited {
		return false
	}
	now = min(max(now, 0), maxTime)
	begin, wait := begins(r, s)
	by := begin - now
	if by <= max(wait, mostAhead) {
		return false
	}
	switch r.Algorithm {
	case store.TokenBucket, store.LeakyBucket:
		s.V[1] = now
	case store.Distinct:
		_, s.V[1] = fixedWindow(r, &State{}, now)
		s.V[2] = fixedCode(r)
	case store.FixedWindow, store.SlidingLog, store.SlidingWindow, store.SlidingBuckets, store.Concurrency:
		n := r.Limit - available(r, s, now)
		s.V, s.Words = [4]int64{}, s.Words[:0]
		if n > 0 {
			add(r, s, now, n)
		}
	}
	if s.Until > begin {
		s.Until -= by
	}
	return true
}

// begins returns a time that is not after the last write of s, unless the clock went back
// or a log was drawn from, and how long the limit takes to be whole again. A debt, a
// booking or credit does not change either.
func begins(r *store.Rule, s *State) (begin, wait int64) {
	switch r.Algorithm {
	case store.TokenBucket, store.LeakyBucket:
		return s.V[1], drained(r, 0, r.Capacity)
	case store.FixedWindow, store.Distinct:
		length := WindowLength(s.V[2])
		return s.V[1] - length, length
	case store.SlidingLog, store.Concurrency:
		return s.V[2], r.Period // what was drawn counts from up to a twentieth of it later
	case store.SlidingWindow:
		return s.V[1], s.V[2]
	case store.SlidingBuckets:
		return s.V[0] * s.V[1], s.V[2]
	}
	return 0, 0
}

// WindowLength returns the length of a fixed window in microseconds, by its V[2]. For a
// calendar unit it is the greatest that clock changes allow, and in the caller's own zone
// also that a change of the zone allows.
func WindowLength(code int64) int64 {
	const hour = int64(time.Hour / time.Microsecond)
	if code > ownUnits && code <= 2*ownUnits {
		return WindowLength(code-ownUnits) + longestKept
	}
	most := [...]int64{
		store.Minute: hour, store.Hour: hour, store.Day: 25 * hour, store.Week: (7*24 + 1) * hour,
		store.Month: (31*24 + 1) * hour, store.Year: 366 * 24 * hour,
	}
	if code > 0 && code < int64(len(most)) {
		return most[code] //nolint:gosec // code is below the length
	}
	return code
}
