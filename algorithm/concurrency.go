package algorithm

import (
	"github.com/headgate/headgate/store"
)

// A concurrency limit has the state of a sliding log whose period is the length of a
// lease. Each entry is a lease. Its time is when the lease started, and also its name,
// so no two entries have the same time: a lease that starts in the same microsecond as
// another gets the next microsecond and ends that much later.
//
//	V[0]   total of all leases from the head on
//	V[1]   head: the index in Words of the oldest lease that is kept
//	V[2]   the newest name issued, even if it has been released
//	V[3]   the index in Words of the newest lease
//	Words  the leases, not packed as in a log, because most leave from the middle
//
// A lease is one word time·1024 + count. A count of 1023 or more is stored as
// time·1024 + 1023, with the count in a second word. A renewed lease becomes a new
// entry, so entries stay in the order in which they end.
const (
	logShift = 10
	logLong  = 1<<logShift - 1 // this count means: see the next word
)

// leaseEntry reads the entry at i and returns the index of the next.
func leaseEntry(words []uint64, i int64) (at, count, next int64) {
	at, count = int64(words[i]>>logShift), int64(words[i]&logLong)
	if count == logLong {
		return at, int64(words[i+1]), i + 2
	}
	return at, count, i + 1
}

// leaseWrite writes an entry at i, where there must be space, and returns the index
// after it.
func leaseWrite(words []uint64, i, at, count int64) int64 {
	if count >= logLong {
		words[i], words[i+1] = uint64(at<<logShift|logLong), uint64(count)
		return i + 2
	}
	words[i] = uint64(at<<logShift | count)
	return i + 1
}

// leaseAppend appends an entry as the newest.
func leaseAppend(s *State, at, n int64) {
	s.V[0] += n
	s.V[3] = int64(len(s.Words))
	if n >= logLong {
		s.Words = append(s.Words, uint64(at<<logShift|logLong), uint64(n))
	} else {
		s.Words = append(s.Words, uint64(at<<logShift|n))
	}
}

// leaseCompact moves the entries to the front when more than half of the words are
// before the head, so each word is moved about once.
func leaseCompact(s *State) {
	head := s.V[1]
	if head*2 < int64(len(s.Words)) {
		return
	}
	s.Words = s.Words[:copy(s.Words, s.Words[head:])]
	s.V[1] = 0
	s.V[3] -= head
}

// leaseRewrite rewrites the entries from head on at the front of the words with new
// counts, none of them larger than before.
func leaseRewrite(s *State, head int64, keep func(at, count int64) int64) {
	s.V = [4]int64{}
	end, length := int64(0), int64(len(s.Words))
	for i := head; i < length; {
		at, count, next := leaseEntry(s.Words, i)
		if count = keep(at, count); count > 0 {
			s.V[0] += count
			s.V[2], s.V[3] = at, end
			end = leaseWrite(s.Words, end, at, count)
		}
		i = next
	}
	s.Words = s.Words[:end]
}

// leaseForget drops the leases before head, of which total remains.
func (s *State) leaseForget(total int64, head cursor) { s.V[0], s.V[1] = total, head.i }

// leased returns the name of the newest lease, or 0 if nothing was taken.
func leased(r *store.Rule, s *State, n int64) int64 {
	if r.Algorithm != store.Concurrency || n <= 0 || s.V[3] >= int64(len(s.Words)) {
		return 0
	}
	at, _, _ := leaseEntry(s.Words, s.V[3])
	return at
}

// lease answers Release and Renew.
func lease(r *store.Rule, s *State, now int64, req Request) Result {
	held := leaseHeld(r, s, now, req)
	switch {
	case req.Kind == store.KindRenew && held == 0:
		res := done(r, s, now, 0, false)
		res.Allowed, res.Reason, res.RetryAfter = false, store.ReasonExpired, store.Never
		return res
	case held == 0 || req.Cost == 0:
		return done(r, s, now, 0, false)
	}
	leaseEnd(r, s, now, req.Lease, held)
	if req.Kind == store.KindRelease {
		forgetUnused(r, s, now)
		return done(r, s, now, held, true)
	}
	leasePut(s, max(now, s.V[2]+1), held)
	res := done(r, s, now, held, true)
	res.Lease = leased(r, s, held)
	return res
}

// leaseHeld returns how much of the requested lease is still held: at most the cost, or
// at least 1 for a dry run.
func leaseHeld(r *store.Rule, s *State, now int64, req Request) int64 {
	if r.Algorithm != store.Concurrency {
		return 0
	}
	_, head := logAt(r, s, now)
	for i := head.i; i < int64(len(s.Words)); {
		at, count, next := leaseEntry(s.Words, i)
		if at >= req.Lease {
			if at > req.Lease {
				break
			}
			return min(count, max(req.Cost, 1))
		}
		i = next
	}
	return 0
}

// leaseAdd starts a lease of n. If debts have made the list longer than the limit
// explains, n is added to the newest lease instead.
func leaseAdd(r *store.Rule, s *State, now, n int64) {
	s.leaseForget(logAt(r, s, now))
	if n = min(n, maxCount-s.V[0]); n == 0 {
		return // the debt cannot grow further
	}
	live := int64(len(s.Words)) - s.V[1]
	if live > 2*r.Limit+64 {
		at, count, _ := leaseEntry(s.Words, s.V[3])
		s.Words, s.V[0] = s.Words[:s.V[3]], s.V[0]-count
		leaseAppend(s, at, n+count)
		return
	}
	leasePut(s, max(now, s.V[2]+1), n)
}

// leasePut starts the lease named at. The head must be current.
func leasePut(s *State, at, n int64) {
	if s.V[1] == int64(len(s.Words)) {
		s.Words, s.V[1] = s.Words[:0], 0
	} else {
		leaseCompact(s)
	}
	s.V[2] = at
	leaseAppend(s, at, n)
}

// leaseEnd takes n out of the entry with that time, which must exist and hold at least
// n.
func leaseEnd(r *store.Rule, s *State, now, name, n int64) {
	s.leaseForget(logAt(r, s, now))
	s.V[0] -= n
	before := s.V[1]
	for i := s.V[1]; i < int64(len(s.Words)); {
		at, count, next := leaseEntry(s.Words, i)
		if at != name {
			before, i = i, next
			continue
		}
		end := i
		if count > n {
			before, end = i, leaseWrite(s.Words, i, at, count-n)
		}
		if next == int64(len(s.Words)) {
			s.V[3] = before
		} else {
			s.V[3] -= next - end
		}
		s.Words = s.Words[:end+int64(copy(s.Words[end:], s.Words[next:]))]
		break
	}
	if s.V[1] == int64(len(s.Words)) {
		s.Words, s.V[1], s.V[3] = s.Words[:0], 0, 0
	}
}

// leaseSub returns n as a sliding log does, no matter whose leases they are.
func leaseSub(r *store.Rule, s *State, now, n, left int64) bool {
	newest := s.V[2]
	changed := logSub(r, s, now, n, left)
	if changed {
		s.V[2] = newest
	}
	return changed
}

// leaseFresh returns when all leases have ended. A key without leases is like an unused
// one once all names it has issued are in the past.
func leaseFresh(r *store.Rule, s *State, now int64) int64 {
	fresh := now
	if total, _ := logAt(r, s, now); total > 0 {
		at, _, _ := leaseEntry(s.Words, s.V[3])
		fresh = at + r.Period
	}
	if s.V[2] >= now && s.V[2] > 0 {
		fresh = max(fresh, s.V[2]+1)
	}
	return fresh
}
