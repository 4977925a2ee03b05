package algorithm

import "github.com/headgate/headgate"

// A sliding log's state:
//
//	V[0]  total of all entries from the head on
//	V[1]  head: the index in Words of the oldest entry that is kept
//	V[2]  the time of the newest entry
//	V[3]  the index in Words of the newest entry
//
// An entry is the time and count of an admitted request: one word time·1024 + count. A
// count of 1023 or more is stored as time·1024 + 1023, with the count in a second word.
// An entry counts for one period: at time + period it no longer does.

const (
	logShift = 10
	logLong  = 1<<logShift - 1 // this count means: see the next word

	// maxLate is by how much a caller may misjudge the time of a take that it returns,
	// because its clock is not the store's, or because of half the duration of a call.
	maxLate = 1 << 16
)

// logEntry reads the entry at i and returns the index of the next.
func logEntry(words []int64, i int64) (at, count, next int64) {
	at, count = words[i]>>logShift, words[i]&logLong
	if count == logLong {
		return at, words[i+1], i + 2
	}
	return at, count, i + 1
}

// logPut writes an entry at i, where there must be space, and returns the index after
// it.
func logPut(words []int64, i, at, count int64) int64 {
	if count >= logLong {
		words[i], words[i+1] = at<<logShift|logLong, count
		return i + 2
	}
	words[i] = at<<logShift | count
	return i + 1
}

// logAt returns the total at now, and the index of the first entry that counts.
func logAt(r *headgate.Rule, s *State, now int64) (total, head int64) {
	total, head = s.V[0], s.V[1]
	for head < int64(len(s.Words)) {
		at, count, next := logEntry(s.Words, head)
		if now < at+r.Period {
			break
		}
		total -= count
		head = next
	}
	return total, head
}

func logAvailable(r *headgate.Rule, s *State, now int64) int64 {
	total, _ := logAt(r, s, now)
	return r.Limit - total
}

// logAdd appends an entry, or adds to the newest one if both are in the same
// microsecond or debts have made the log longer than its limit explains.
func logAdd(r *headgate.Rule, s *State, now, n int64) {
	s.V[0], s.V[1] = logAt(r, s, now)
	if n = min(n, maxCount-s.V[0]); n == 0 {
		return // the debt cannot grow further
	}
	at := now
	live := int64(len(s.Words)) - s.V[1]
	if live == 0 {
		s.Words, s.V[1] = s.Words[:0], 0
	} else {
		at = max(now, s.V[2])
		if at == s.V[2] || live > 2*r.Limit+64 {
			_, count, _ := logEntry(s.Words, s.V[3])
			s.Words = s.Words[:s.V[3]]
			n += count
			s.V[0] -= count
		} else {
			logCompact(s)
		}
	}
	s.V[2] = at
	logAppend(s, at, n)
}

// logAppend appends an entry as the newest.
func logAppend(s *State, at, n int64) {
	s.V[0] += n
	s.V[3] = int64(len(s.Words))
	if n >= logLong {
		s.Words = append(s.Words, at<<logShift|logLong, n)
	} else {
		s.Words = append(s.Words, at<<logShift|n)
	}
}

// logCompact moves the entries to the front when more than half of the words are before
// the head, so each word is moved about once.
func logCompact(s *State) {
	head := s.V[1]
	if head*2 < int64(len(s.Words)) {
		return
	}
	s.Words = s.Words[:copy(s.Words, s.Words[head:])]
	s.V[1] = 0
	s.V[3] -= head
}

// logDenied keeps a refused request in the log, and drops the oldest entries once the
// newer ones fill the limit without them.
func logDenied(r *headgate.Rule, s *State, now, n int64) {
	if r.Limit == 0 {
		return
	}
	logAdd(r, s, now, min(n, r.Limit))
	for s.V[1] < s.V[3] {
		_, count, next := logEntry(s.Words, s.V[1])
		if s.V[0]-count < r.Limit {
			break
		}
		s.V[0] -= count
		s.V[1] = next
	}
}

// logSub takes n out of the log: from the entry of the returned take, then from older
// ones, newest first. Without left, it starts at the newest.
func logSub(r *headgate.Rule, s *State, now, n, left int64) bool {
	total, head := logAt(r, s, now)
	if total == 0 {
		return false
	}
	taken := int64(never)
	if left > 0 {
		taken = logTaken(r, s, head, now+left-r.Period)
	}
	var since int64 // the total of the entries not older than the take
	for i := head; i < int64(len(s.Words)); {
		at, count, next := logEntry(s.Words, i)
		if at >= taken {
			since += count
		}
		i = next
	}
	fromSince := min(n, since)
	keepOlder := max(total-since-(n-fromSince), 0)
	logRewrite(s, head, func(at, count int64) int64 {
		if at >= taken {
			gone := min(count, fromSince)
			fromSince -= gone
			return count - gone
		}
		kept := min(count, keepOlder)
		keepOlder -= kept
		return kept
	})
	return true
}

// logTaken returns the earliest time at which the take made at about that time may be
// found: that exact time if there is an entry, otherwise slightly earlier. Taking out
// an older entry returns less than was taken. Taking out a newer one would return more,
// because it would be admitted again before its period is over.
func logTaken(r *headgate.Rule, s *State, head, about int64) int64 {
	for i := head; i < int64(len(s.Words)); {
		at, _, next := logEntry(s.Words, i)
		if at >= about {
			if at == about {
				return at
			}
			break
		}
		i = next
	}
	return about - min(maxLate, r.Period/8)
}

// logRewrite rewrites the entries from head on at the front of the words with new
// counts, none of them larger than before.
func logRewrite(s *State, head int64, keep func(at, count int64) int64) {
	s.V = [4]int64{}
	end, length := int64(0), int64(len(s.Words))
	for i := head; i < length; {
		at, count, next := logEntry(s.Words, i)
		if count = keep(at, count); count > 0 {
			s.V[0] += count
			s.V[2], s.V[3] = at, end
			end = logPut(s.Words, end, at, count)
		}
		i = next
	}
	s.Words = s.Words[:end]
}

func logFits(r *headgate.Rule, s *State, now, n int64) int64 {
	total, head := logAt(r, s, now)
	for head < int64(len(s.Words)) {
		at, count, next := logEntry(s.Words, head)
		if total -= count; total+n <= r.Limit {
			return at + r.Period
		}
		head = next
	}
	return now
}

func logFresh(r *headgate.Rule, s *State, now int64) int64 {
	if total, _ := logAt(r, s, now); total == 0 {
		return now
	}
	return s.V[2] + r.Period
}
