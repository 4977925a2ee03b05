package algorithm

import (
	"github.com/headgate/headgate/store"
)

// Headroom is a part of a limit that is kept for requests of a higher class: the others must
// leave it. It is one comparison, and the state is the same as without: a request of a higher
// class finds what is kept at once.
//
//	bucket                    a part of the burst. All of the rate is for everybody: once the
//	                          part has refilled, what refills is nobody's
//	fixed window              a part of the limit, less what the elapsed part of the window
//	                          would have been for: it is lent evenly, until the window ends
//	other windows, leases     a part of the limit, always
//
// Credit is not part of the limit: a request of any class may take all of it.

// takeLeaving is take for a request that must leave something.
func takeLeaving(r *store.Rule, s *State, now int64, req Request) Result {
	n, free, credit := req.Cost, available(r, s, now), creditAt(s, now)
	regular, ok := split(r, n, max(beyond(r, s, now, free, req.Leave), -1), credit)
	switch {
	case !ok:
		res := refuseLeaving(r, s, now, n, req.Leave)
		if _, fits := split(r, n, max(free, -1), credit); fits && res.Reason == store.ReasonLimited {
			res.Reason = store.ReasonHeadroom
		}
		return res
	case n == 0 || req.Kind == store.KindPeek:
		return leaving(r, s, now, req.Leave, done(r, s, now, 0, false))
	}
	delay := turn(r, s, now)
	spend(r, s, now, regular, n-regular)
	res := leaving(r, s, now, req.Leave, took(r, s, now, n))
	res.Delay, res.Lease = micros(delay), leased(r, s, regular)
	return res
}

// beyond returns how much of what is free may be taken.
func beyond(r *store.Rule, s *State, now, free, leave int64) int64 {
	if r.Algorithm == store.FixedWindow {
		return min(free-fixedKept(r, s, now, leave), r.Limit-leave)
	}
	return free - leave
}

// leaving makes res the answer for a request that must leave something.
func leaving(r *store.Rule, s *State, now, leave int64, res Result) Result {
	credit := creditAt(s, now)
	left := res.Remaining - credit
	if r.Algorithm == store.LeakyBucket { // which may have more places than are in time
		left = min(left, available(r, s, now)-leave)
	} else {
		left = beyond(r, s, now, left, leave)
	}
	res.Remaining = max(left, 0) + credit
	return res
}

// refuseLeaving is refuse for a request that must leave something.
func refuseLeaving(r *store.Rule, s *State, now, n, leave int64) Result {
	res := leaving(r, s, now, leave, done(r, s, now, 0, false))
	res.Allowed, res.Reason = false, store.ReasonLimited
	most := r.Most() - leave
	if credit := creditAt(s, now); credit > 0 && n-credit <= most {
		if at := fitsLeaving(r, s, now, max(n-credit, 0), leave); at < s.Until {
			res.RetryAfter = micros(at - now)
			return res
		}
	}
	if n > most || r.Limit == 0 {
		res.Reason, res.RetryAfter = store.ReasonTooLarge, store.Never
		return res
	}
	res.RetryAfter = micros(fitsLeaving(r, s, now, n, leave) - now)
	return res
}

// fitsLeaving is fits for a request that must leave something.
func fitsLeaving(r *store.Rule, s *State, now, n, leave int64) int64 {
	if r.Algorithm == store.FixedWindow {
		return fixedFitsLeaving(r, s, now, n, leave)
	}
	return fits(r, s, now, n+leave)
}

// fixedKept returns how much a fixed window still keeps of leave.
func fixedKept(r *store.Rule, s *State, now, leave int64) int64 {
	end := s.V[1]
	if s.V[0] == 0 || now >= end {
		_, end = fixedWindow(r, s, now)
	}
	elapsed := max(r.Period-(end-now), 0) // a month may be longer than its period
	return leave - mulDiv(leave, elapsed, r.Period)
}

// fixedFitsLeaving returns when n will fit and leave what is still kept then.
func fixedFitsLeaving(r *store.Rule, s *State, now, n, leave int64) int64 {
	if fixedAvailable(r, s, now)-fixedKept(r, s, now, leave) >= n {
		return now
	}
	spare := r.Limit - n - s.V[0] // there is a window: an empty one keeps no more than leave
	if spare < 0 {
		return s.V[1]
	}
	return s.V[1] - r.Period + overlapFor(leave, leave-spare-1, r.Period) + 1
}
