package algorithm

import (
	"github.com/headgate/headgate/store"
)

// The state of sliding buckets:
//
//	V[0]   newest: the number of the newest sub-window with a count
//	V[1]   the width of a sub-window in microseconds
//	V[2]   the period
//	V[3]   how many counters Words holds, how wide they are, and which is the newest
//	Words  the counters of the newest sub-windows; see ring
//
// Sub-window j starts at j·width since the epoch. The window up to now overlaps at most
// Buckets + 1 of them; Edge decides how the oldest is counted.

// bucketsSpan says which sub-windows count at some time.
type bucketsSpan struct {
	oldest  int64
	overlap int64 // how much of the oldest is inside the window, at most width
}

func spanAt(period, width, now int64) bucketsSpan {
	from := now - period
	oldest := floorDiv(from, width)
	return bucketsSpan{oldest: oldest, overlap: (oldest+1)*width - from}
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// sameShape reports whether s was written under the rule's period and width.
func sameShape(r *store.Rule, s *State) bool {
	return s.V[1] == r.Tick && s.V[2] == r.Period && s.counters() == int64(r.Buckets)+1
}

// count returns the counter of sub-window j, 0 if the ring does not hold it.
func (s *State) count(j int64) int64 {
	if age := s.V[0] - j; age >= 0 && age < s.counters() && j >= 0 {
		g := s.ring()
		return g.at(g.index(age))
	}
	return 0
}

// edge returns how much of the oldest sub-window's count is used.
func edge(e store.Edge, count, overlap, width int64) int64 {
	switch {
	case overlap == width || e == store.EdgeStrict:
		return count
	case e == store.EdgeLenient:
		return 0
	}
	return mulDiv(count, overlap, width)
}

// counting returns how much sub-window j contributes to span.
func (s *State) counting(e store.Edge, span bucketsSpan, j int64) int64 {
	switch {
	case j < span.oldest:
		return 0
	case j == span.oldest:
		return edge(e, s.count(j), span.overlap, s.V[1])
	}
	return s.count(j)
}

// bucketsUsed returns the count at now, under the shape in which s was written.
func bucketsUsed(e store.Edge, s *State, now int64) int64 {
	g, width := s.ring(), s.V[1]
	if width == 0 || g.n == 0 {
		return 0
	}
	span := spanAt(s.V[2], width, max(now, s.V[0]*width))
	age := min(s.V[0]-span.oldest, g.n)
	if age < 0 {
		return 0
	}
	used := g.sum(age)
	if age < g.n {
		used += edge(e, g.at(g.index(age)), span.overlap, width)
	}
	return used
}

// sum returns the total of all sub-windows from the given one on.
func (s *State) sum(from int64) int64 {
	g := s.ring()
	return g.sum(min(s.V[0]-from+1, g.n))
}

func bucketsAvailable(r *store.Rule, s *State, now int64) int64 {
	return r.Limit - bucketsUsed(r.Edge, s, now)
}

// bucketsShape converts s to the rule's shape and moves it to now's sub-window. After a
// change of the limit, the old counts keep counting.
func bucketsShape(r *store.Rule, s *State, now int64) {
	g, current := s.ring(), now/r.Tick
	if sameShape(r, s) {
		if by := current - s.V[0]; by > 0 {
			g.advance(by)
			s.V[0] = current
		}
	} else {
		used := min(bucketsUsed(r.Edge, s, now), maxCount)
		g.renew(int64(r.Buckets)+1, used)
		g.put(0, used)
		s.V = [4]int64{current, r.Tick, r.Period}
	}
	g.keep(s)
}

func bucketsAdd(r *store.Rule, s *State, now, n int64) {
	bucketsShape(r, s, now)
	g := s.ring()
	g.put(g.newest, min(g.at(g.newest)+min(n, maxCount), maxCount))
	g.keep(s)
}

// bucketsSub takes n out of the sub-window of the take, then out of older ones, newest
// first.
func bucketsSub(r *store.Rule, s *State, now, n, left int64) bool {
	if bucketsUsed(r.Edge, s, now) == 0 {
		return false
	}
	bucketsShape(r, s, now)
	span := spanAt(r.Period, r.Tick, max(now, s.V[0]*r.Tick))
	from := s.V[0]
	if left > 0 {
		from = min(from, bucketsTaken(r, s, span, now+left))
	}
	g := s.ring()
	for j := from; j >= max(span.oldest, s.V[0]-g.n+1, 0) && n > 0; j-- {
		i := g.index(s.V[0] - j)
		gone := min(n, g.at(i))
		g.put(i, g.at(i)-gone)
		n -= gone
	}
	return true // if only because of the new shape
}

// bucketsTaken returns the sub-window of a take that counts until the given time: the
// one whose takes end then, or the one before it if the time is only slightly later
// than its takes end and it still counts. Choosing a newer one would return more than
// was taken, because that sub-window's own takes would be admitted again before their
// period is over.
func bucketsTaken(r *store.Rule, s *State, span bucketsSpan, until int64) int64 {
	j := floorDiv(until-r.Period-1, r.Tick)
	late := until - r.Period - j*r.Tick // from 1 to a width
	switch {
	case r.Edge == store.EdgeLenient || late > min(maxLate, r.Tick/8):
		return j
	case r.Edge == store.EdgeWeighted && late == 1: // as for a single take of 1
		return j
	case s.counting(r.Edge, span, j-1) == 0:
		return j
	}
	return j - 1
}

// bucketsFits returns when n will fit. It goes from the oldest sub-window to the
// newest, to the one whose end makes enough available. Until a take rewrites the state,
// it fades in its current shape.
func bucketsFits(r *store.Rule, s *State, now, n int64) int64 {
	width := s.V[1]
	span := spanAt(s.V[2], width, max(now, s.V[0]*width))
	g := s.ring()
	first := max(span.oldest, s.V[0]-g.n+1, 0)
	rest := s.sum(first)
	for j := first; j <= s.V[0]; j++ {
		count := g.at(g.index(s.V[0] - j))
		rest -= count
		if spare := r.Limit - n - rest; spare >= 0 && count > spare {
			return max(leaves(r.Edge, s, j, count, spare), now)
		}
	}
	return now
}

// leaves returns when sub-window j, which holds count, contributes at most spare (less
// than count), under the shape in which s was written.
func leaves(e store.Edge, s *State, j, count, spare int64) int64 {
	width, period := s.V[1], s.V[2]
	switch e {
	case store.EdgeLenient:
		return j*width + period + 1
	case store.EdgeStrict:
		return (j+1)*width + period
	case store.EdgeWeighted:
	}
	return (j+1)*width + period - overlapFor(count, spare, width)
}

func bucketsFresh(r *store.Rule, s *State, now int64) int64 {
	for j := s.V[0]; j > s.V[0]-s.counters() && j >= 0; j-- {
		if count := s.count(j); count > 0 {
			at := leaves(r.Edge, s, j, count, 0)
			if at <= s.V[0]*s.V[1] {
				return now // if the clock has gone back, now stays at V[0]
			}
			return max(at, now)
		}
	}
	return now
}
