package algorithm

import "github.com/headgate/headgate"

// A concurrency limit has the state of a sliding log whose period is the length of a
// lease. Each entry is a lease. Its time is when the lease started, and also its name,
// so no two entries have the same time: a lease that starts in the same microsecond as
// another gets the next microsecond and ends that much later.
//
//	V[0], V[1]  total and head, as in a sliding log
//	V[2]        the newest name issued, even if it has been released
//	V[3]        the index in Words of the newest entry
//
// A renewed lease becomes a new entry, so entries stay in the order in which they end.

// leased returns the name of the newest lease, or 0 if nothing was taken.
func leased(r *headgate.Rule, s *State, n int64) int64 {
	if r.Algorithm != headgate.Concurrency || n <= 0 || s.V[3] >= int64(len(s.Words)) {
		return 0
	}
	at, _, _ := logEntry(s.Words, s.V[3])
	return at
}

// lease answers Release and Renew.
func lease(r *headgate.Rule, s *State, now int64, req Request) Result {
	held := leaseHeld(r, s, now, req)
	switch {
	case req.Kind == headgate.Renew && held == 0:
		res := done(r, s, now, 0, false)
		res.Allowed, res.Reason, res.RetryAfter = false, headgate.Expired, headgate.Never
		return res
	case held == 0 || req.Cost == 0:
		return done(r, s, now, 0, false)
	}
	leaseEnd(r, s, now, req.Lease, held)
	if req.Kind == headgate.Release {
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
func leaseHeld(r *headgate.Rule, s *State, now int64, req Request) int64 {
	if r.Algorithm != headgate.Concurrency {
		return 0
	}
	_, head := logAt(r, s, now)
	for i := head; i < int64(len(s.Words)); {
		at, count, next := logEntry(s.Words, i)
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
func leaseAdd(r *headgate.Rule, s *State, now, n int64) {
	s.V[0], s.V[1] = logAt(r, s, now)
	if n = min(n, maxCount-s.V[0]); n == 0 {
		return // the debt cannot grow further
	}
	live := int64(len(s.Words)) - s.V[1]
	if live > 2*r.Limit+64 {
		at, count, _ := logEntry(s.Words, s.V[3])
		s.Words, s.V[0] = s.Words[:s.V[3]], s.V[0]-count
		logAppend(s, at, n+count)
		return
	}
	leasePut(s, max(now, s.V[2]+1), n)
}

// leasePut starts the lease named at. The head must be current.
func leasePut(s *State, at, n int64) {
	if s.V[1] == int64(len(s.Words)) {
		s.Words, s.V[1] = s.Words[:0], 0
	} else {
		logCompact(s)
	}
	s.V[2] = at
	logAppend(s, at, n)
}

// leaseEnd takes n out of the entry with that time, which must exist and hold at least
// n.
func leaseEnd(r *headgate.Rule, s *State, now, name, n int64) {
	s.V[0], s.V[1] = logAt(r, s, now)
	s.V[0] -= n
	before := s.V[1]
	for i := s.V[1]; i < int64(len(s.Words)); {
		at, count, next := logEntry(s.Words, i)
		if at != name {
			before, i = i, next
			continue
		}
		end := i
		if count > n {
			before, end = i, logPut(s.Words, i, at, count-n)
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
func leaseSub(r *headgate.Rule, s *State, now, n, left int64) bool {
	newest := s.V[2]
	changed := logSub(r, s, now, n, left)
	if changed {
		s.V[2] = newest
	}
	return changed
}

// leaseFresh returns when all leases have ended. A key without leases is like an unused
// one once all names it has issued are in the past.
func leaseFresh(r *headgate.Rule, s *State, now int64) int64 {
	fresh := now
	if total, _ := logAt(r, s, now); total > 0 {
		at, _, _ := logEntry(s.Words, s.V[3])
		fresh = at + r.Period
	}
	if s.V[2] >= now && s.V[2] > 0 {
		fresh = max(fresh, s.V[2]+1)
	}
	return fresh
}
