package algorithm

import "github.com/headgate/headgate"

// The state of a concurrency limit is that of a sliding log whose
// period is the length of a lease, and whose entries are leases: an entry's
// time is when the lease began. That is also its name, so no two entries have
// the same time: one that begins in the same microsecond as another is given
// the next, and so ends that much later.
//
//	V[0], V[1]  total and head, as of a sliding log
//	V[2]        the newest name that was given, also if it has been released
//	V[3]        the index in Words of the newest entry
//
// A lease that is renewed becomes a new entry, so that the entries stay in the
// order in which they end.

// leased returns the name of the lease that was added last, if any of it was.
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

// leaseHeld returns how much of the lease a request means is still held: at
// most its cost, or at least 1 for a dry run.
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

// leaseAdd begins a lease of n. Where debts have made the list longer than its
// limit explains, they are added to the newest lease instead.
func leaseAdd(r *headgate.Rule, s *State, now, n int64) {
	s.V[0], s.V[1] = logAt(r, s, now)
	if n = min(n, maxCount-s.V[0]); n == 0 {
		return // a debt can grow no further
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

// leasePut begins the lease named at. The head is that of now.
func leasePut(s *State, at, n int64) {
	if s.V[1] == int64(len(s.Words)) {
		s.Words, s.V[1] = s.Words[:0], 0
	} else {
		logCompact(s)
	}
	s.V[2] = at
	logAppend(s, at, n)
}

// leaseEnd takes n out of the entry of that time, which is there and holds at
// least as much.
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

// leaseSub gives n back as a sliding log does, whosever leases they are.
func leaseSub(r *headgate.Rule, s *State, now, n, left int64) bool {
	newest := s.V[2]
	changed := logSub(r, s, now, n, left)
	if changed {
		s.V[2] = newest
	}
	return changed
}

// leaseFresh returns when all leases have ended. A key without any is like an
// unused one when the names that it has given are in the past.
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
