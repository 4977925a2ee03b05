package algorithm

import (
	"math/bits"

	"github.com/headgate/headgate/store"
)

// A sliding window's state:
//
//	V[0]  current: the count of the window that starts at V[1]
//	V[1]  start, a whole multiple of the period since the epoch
//	V[2]  the period, to detect a changed limit
//	V[3]  previous: the count of the window before
//
// The previous window is assumed to be evenly filled: it contributes its count times
// the part of it that the window up to now still overlaps, rounded down.

// slidingCounts is the state advanced to now.
type slidingCounts struct {
	current, previous int64
	start             int64
	overlap           int64 // how many microseconds of the previous window still count
}

// slidingAt advances s to now in windows of w.
func slidingAt(s *State, now, w int64) slidingCounts {
	if old := s.V[2]; old != w {
		c := slidingCounts{start: now / w * w}
		if old != 0 {
			// After a change of the period, the old counts keep counting.
			c.current = min(slidingAt(s, now, old).used(old), maxCount)
		}
		return c
	}
	c := slidingCounts{current: s.V[0], previous: s.V[3], start: s.V[1]}
	now = max(now, c.start)
	switch since := now - c.start; {
	case since < w:
	case since < 2*w:
		c.previous, c.current = c.current, 0
		c.start += w
	default:
		c.previous, c.current = 0, 0
		c.start += since / w * w
	}
	c.overlap = w - (now - c.start)
	return c
}

// slidingPeriod returns the period under which s was written. Until a take rewrites the
// state, it fades with that period.
func slidingPeriod(r *store.Rule, s *State) int64 {
	if s.V[2] != 0 {
		return s.V[2]
	}
	return r.Period
}

// used returns the count at the time of c in windows of w.
func (c slidingCounts) used(w int64) int64 {
	if c.previous == 0 {
		return c.current
	}
	return mulDiv(c.previous, c.overlap, w) + c.current
}

// mulDiv returns floor(a·b/c) for b at most c.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi == 0 {
		return int64(lo / uint64(c))
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}

// overlapFor returns the largest overlap of w at which floor(count·overlap/w)
// is at most most; count is more than most.
func overlapFor(count, most, w int64) int64 {
	hi, lo := bits.Mul64(uint64(most)+1, uint64(w))
	lo, borrow := bits.Sub64(lo, 1, 0)
	q, _ := bits.Div64(hi-borrow, lo, uint64(count))
	return int64(q)
}

func slidingAvailable(r *store.Rule, s *State, now int64) int64 {
	return r.Limit - slidingAt(s, now, r.Period).used(r.Period)
}

func (c slidingCounts) store(r *store.Rule, s *State) {
	s.V = [4]int64{c.current, c.start, r.Period, c.previous}
}

func slidingAdd(r *store.Rule, s *State, now, n int64) {
	c := slidingAt(s, now, r.Period)
	c.current = min(c.current+min(n, maxCount), maxCount)
	c.store(r, s)
}

// slidingSub returns n into the window of the take. A take of this window counts until
// some time in the next one, a take of the previous window until some time in this one.
func slidingSub(r *store.Rule, s *State, now, n, left int64) bool {
	c := slidingAt(s, now, r.Period)
	if c.used(r.Period) == 0 {
		return false
	}
	var fromCurrent int64
	if left == 0 || c.tookCurrent(r, now+left) {
		fromCurrent = min(n, c.current)
	}
	fromPrevious := min(n-fromCurrent, c.previous)
	c.current -= fromCurrent
	c.previous -= fromPrevious
	if fromCurrent+fromPrevious == 0 {
		return false
	}
	c.store(r, s)
	return true
}

// tookCurrent reports whether a take that counts until the given time belongs to the
// current window. If that is shortly after the end of this window, the take belongs to
// the previous one (if that still counts) and its time is off: of the current window, a
// single token ends 1 µs after the end, and two end halfway through the next window.
func (c slidingCounts) tookCurrent(r *store.Rule, until int64) bool {
	after := until - c.start - r.Period
	if after > 1 && after <= min(maxLate, r.Period/8) {
		return c.used(r.Period) == c.current
	}
	return after > 0
}

func slidingFits(r *store.Rule, s *State, now, n int64) int64 {
	w := slidingPeriod(r, s)
	c := slidingAt(s, now, w)
	if spare := r.Limit - n - c.current; spare >= 0 {
		// The current window has space once the previous one has faded.
		return c.start + w - overlapFor(c.previous, spare, w)
	}
	// Not before the current window has become the previous one and faded.
	return c.start + 2*w - overlapFor(c.current, r.Limit-n, w)
}

func slidingFresh(r *store.Rule, s *State, now int64) int64 {
	w := slidingPeriod(r, s)
	c := slidingAt(s, now, w)
	switch {
	case c.current > 0:
		return c.start + 2*w - (w-1)/c.current
	case c.previous > 0:
		return c.start + w - (w-1)/c.previous
	}
	return now
}
