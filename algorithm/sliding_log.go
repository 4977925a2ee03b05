package algorithm

import (
	"github.com/headgate/headgate/store"
)

// A sliding log's state:
//
//	V[0]  total of all entries from the head on
//	V[1]  head: the position of the oldest entry that is kept
//	V[2]  the time of the newest entry
//	V[3]  the places of the entries from the head on: 2 for a count of 1023 or more, else 1
//
// An entry is the time and count of an admitted request; entries.go says how they are
// kept. An entry counts for one period: at time + period it no longer does.

// maxLate is by how much a caller may misjudge the time of a take that it returns,
// because its clock is not the store's, or because of half the duration of a call.
const maxLate = 1 << 16

// logAt returns the total at now, and the place of the first entry that counts. Leases
// have it too, as everything below that takes a rule.
func logAt(r *store.Rule, s *State, now int64) (total int64, head cursor) {
	total, head = s.V[0], s.first(r.Algorithm)
	for end := s.end(r.Algorithm); head.i < end && head.at+r.Period <= now; {
		count, next := s.entry(r.Algorithm, head)
		total -= count
		head = next
	}
	return total, head
}

func logAvailable(r *store.Rule, s *State, now int64) int64 {
	total, _ := logAt(r, s, now)
	return r.Limit - total
}

// logForget drops the entries before head, of which total remains.
func (s *State) logForget(total int64, head cursor) {
	s.V[0] = total
	s.V[3] -= head.gone
	if s.V[3] == 0 {
		s.Words, s.V[1] = s.Words[:0], 0
		return
	}
	s.V[1] = head.i
	s.Words[0] = uint64(head.at)<<widthBits | uint64(s.width())
}

// logAdd appends an entry, or adds to the newest one if both are in the same
// microsecond or debts have made the log longer than its limit explains.
func logAdd(r *store.Rule, s *State, now, n int64) { logAddAt(r, s, now, now, n) }

// logAddAt is logAdd for what counts as taken at a later time, at. Until then it counts
// too.
func logAddAt(r *store.Rule, s *State, now, at, n int64) {
	s.logForget(logAt(r, s, now))
	if n = min(n, maxCount-s.V[0]); n == 0 {
		return // the debt cannot grow further
	}
	switch {
	case s.V[3] == 0:
		s.appendEntry(r, at, n)
	case at <= s.V[2] || s.V[3] > 2*r.Limit+64:
		s.addToNewest(r, max(at, s.V[2]), n)
	default:
		s.appendEntry(r, at, n)
	}
}

// logExcess drops the oldest entries of a log that counts refusals, if the newer ones
// fill the limit without them.
func logExcess(r *store.Rule, s *State) {
	total, head, end := s.V[0], s.first(r.Algorithm), s.end(r.Algorithm)
	for head.i < end {
		count, next := s.entry(r.Algorithm, head)
		if next.i == end || total-count < r.Limit {
			break
		}
		total -= count
		head = next
	}
	s.logForget(total, head)
}

// logSub takes n out of the log: from the entry of the returned take, then from older
// ones, newest first. Without left, it starts at the newest. If refusals count and left
// is known, it touches no other entry: the log may have dropped that of the take.
func logSub(r *store.Rule, s *State, now, n, left int64) bool {
	total, head := logAt(r, s, now)
	if total == 0 {
		return false
	}
	taken, last, alone := int64(never), int64(never), r.CountRefused && left > 0
	if left > 0 {
		about := now + left - r.Period
		taken = logTaken(r, s, head, about)
		if alone {
			last = about + (about - taken)
		}
	}
	var since, newer int64 // the totals of what may be the take, and of what is newer
	for c, end := head, s.end(r.Algorithm); c.i < end; {
		count, next := s.entry(r.Algorithm, c)
		switch {
		case c.at > last:
			newer += count
		case c.at >= taken:
			since += count
		}
		c = next
	}
	fromSince := min(n, since)
	older := total - since - newer
	keepOlder := max(older-(n-fromSince), 0)
	if alone {
		keepOlder = older
	}
	if alone && fromSince == 0 {
		return false
	}
	keep := func(at, count int64) int64 {
		if at > last {
			return count
		}
		if at >= taken {
			gone := min(count, fromSince)
			fromSince -= gone
			return count - gone
		}
		kept := min(count, keepOlder)
		keepOlder -= kept
		return kept
	}
	if r.Algorithm == store.Concurrency {
		leaseRewrite(s, head.i, keep)
	} else {
		s.rewrite(&State{V: s.V, Words: s.Words}, head, keep)
	}
	return true
}

// logTaken returns the earliest time at which the take made at about that time may be
// found: that exact time if there is an entry, otherwise slightly earlier. Taking out
// an older entry returns less than was taken. Taking out a newer one would return more,
// because it would be admitted again before its period is over.
func logTaken(r *store.Rule, s *State, head cursor, about int64) int64 {
	for c, end := head, s.end(r.Algorithm); c.i < end; {
		if c.at >= about {
			if c.at == about {
				return about
			}
			break
		}
		_, c = s.entry(r.Algorithm, c)
	}
	return about - min(maxLate, r.Period/8)
}

func logFits(r *store.Rule, s *State, now, n int64) int64 {
	total, head := logAt(r, s, now)
	for end := s.end(r.Algorithm); head.i < end; {
		count, next := s.entry(r.Algorithm, head)
		if total -= count; total+n <= r.Limit {
			return head.at + r.Period
		}
		head = next
	}
	return now
}

func logFresh(r *store.Rule, s *State, now int64) int64 {
	if total, _ := logAt(r, s, now); total == 0 {
		return now
	}
	return s.V[2] + r.Period
}
