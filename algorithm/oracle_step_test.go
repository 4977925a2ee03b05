package algorithm

import (
	"math/big"
	"time"

	"github.com/headgate/headgate/store"
)

// step is Step without Wrote.
func (o *oracle) step(r *store.Rule, now int64, req Request) Result {
	n := req.Cost
	wait := max(int64(req.Duration/time.Microsecond), 0)
	switch o.leave = req.Leave; req.Kind {
	case store.KindTake:
		return o.take(r, now, n, n)
	case store.KindTakeUpTo:
		granted := min(n, max(o.open(r, now), 0)+o.creditAt(now))
		if granted == 0 {
			return o.take(r, now, min(n, 1), min(n, 1))
		}
		return o.take(r, now, granted, n)
	case store.KindPeek:
		if o.passes(r, now, n) {
			return o.answer(r, now, 0)
		}
		return o.refuse(r, now, n)
	case store.KindReserve:
		return o.reserve(r, now, n, wait)
	case store.KindCharge:
		return o.charge(r, now, n)
	case store.KindRefund:
		if n > 0 && (req.Duration >= 0 || req.CountsUntil > 0) && (req.CountsUntil == 0 || req.CountsUntil > now) {
			switch {
			case req.CountsUntil > 0:
				wait = min(req.CountsUntil, maxInteger) - now
			case req.Duration > 0:
				wait = min(max(wait, 1), maxTime)
			}
			o.sub(r, now, n, wait)
		}
		return o.answer(r, now, 0)
	case store.KindGrant:
		if n == 0 || wait == 0 {
			return o.answer(r, now, 0)
		}
		o.credit = saturated(o.creditAt(now), n)
		if o.until <= now {
			o.until = 0
		}
		o.until = max(o.until, min(now+min(wait, maxTime), maxInteger))
		return o.answer(r, now, n)
	case store.KindReset:
		*o = *newOracle()
		return o.answer(r, now, 0)
	case store.KindRelease:
		held := o.release(r, now, req)
		res := o.answer(r, now, 0)
		res.Granted = held
		return res
	case store.KindRenew:
		return o.renew(r, now, req)
	case store.KindDraw:
		return o.draw(r, now, n, min(wait, maxTime))
	case store.KindTimes: // no step of an algorithm
	}
	panic("unknown kind")
}

// pay takes n, which must fit, from the limit and the rest from the credit.
func (o *oracle) pay(r *store.Rule, now, n int64) (regular int64) {
	regular = min(n, max(o.beyond(r, now), 0))
	o.credit = o.creditAt(now) - (n - regular)
	if o.credit == 0 {
		o.until = 0
	}
	o.add(r, now, regular)
	return regular
}

func (o *oracle) take(r *store.Rule, now, n, _ int64) Result {
	if !o.passes(r, now, n) {
		if r.CountRefused && n > 0 && r.Limit > 0 {
			o.denied(r, now, min(n, r.Limit))
		} else if n > 0 && n <= r.Limit && o.leave == 0 {
			o.shorten(r, now, n)
		}
		return o.refuse(r, now, n)
	}
	if n == 0 {
		return o.answer(r, now, 0)
	}
	delay := o.turn(r, now) - now
	regular := o.pay(r, now, n)
	res := o.took(r, now, n)
	res.Delay, res.Lease = micros(delay), o.leased(r, regular)
	return res
}

func (o *oracle) reserve(r *store.Rule, now, n, wait int64) Result {
	if r.Algorithm > store.LeakyBucket || n == 0 {
		return o.take(r, now, n, n)
	}
	// ready returns when the reserved request may proceed, if it can be reserved at t.
	ready := func(t int64) (int64, bool) {
		if o.passes(r, t, n) {
			at := o.turn(r, t)
			return at, at-t <= wait
		}
		if r.Algorithm == store.LeakyBucket || n > r.Burst || r.Limit == 0 {
			return 0, false
		}
		units := o.usedAt(r, t)
		units.Add(units, new(big.Rat).SetInt64(n))
		if units.Cmp(big.NewRat(maxInteger, r.Token)) > 0 {
			return 0, false
		}
		at := first(t, maxInteger, func(t int64) bool { return n <= o.free(r, t) })
		return at, at-t <= wait
	}
	at, ok := ready(now)
	if !ok {
		res := o.refuse(r, now, n)
		if res.Reason != store.ReasonTooLarge {
			at := o.firstPass(now, func(t int64) bool { _, ok := ready(t); return ok })
			res.RetryAfter = micros(at - now)
			if at >= maxInteger && n > res.Limit {
				res.Reason, res.RetryAfter = store.ReasonTooLarge, store.Never
			}
		}
		return res
	}
	if o.passes(r, now, n) {
		o.pay(r, now, n)
	} else {
		if o.credit = o.creditAt(now); o.credit == 0 {
			o.until = 0
		}
		o.add(r, now, n)
		if o.gross == nil && at > now {
			o.gross = o.used
		}
	}
	res := o.took(r, now, n)
	res.Delay = micros(at - now)
	return res
}

func (o *oracle) charge(r *store.Rule, now, n int64) Result {
	had := o.creditAt(now)
	extra := min(max(n-max(o.open(r, now), 0), 0), had)
	if extra > 0 || r.Limit > 0 && n > 0 {
		if o.credit = o.creditAt(now) - extra; o.credit == 0 {
			o.until = 0
		}
	}
	lease := int64(0)
	if r.Limit > 0 {
		o.add(r, now, n-extra)
		lease = o.leased(r, n-extra)
	}
	res := o.answer(r, now, n)
	if extra > 0 || r.Limit > 0 && n > 0 {
		res = o.took(r, now, n)
	}
	res.Lease = lease
	switch {
	case r.Limit == 0 && (n > extra || o.free(r, now) < 0 || n == 0 && had == 0):
		res.Allowed, res.Reason, res.RetryAfter = false, store.ReasonTooLarge, store.Never
	case o.free(r, now) < 0:
		res.Allowed, res.Reason = false, store.ReasonLimited
		res.RetryAfter = micros(first(now, maxInteger, func(t int64) bool { return o.free(r, t) >= 0 }) - now)
	}
	return res
}

// took is answer for a request that has taken n.
func (o *oracle) took(r *store.Rule, now, n int64) Result {
	res := o.answer(r, now, n)
	res.CountsUntil = first(now, maxInteger, func(t int64) bool {
		return o.unused(r, t) || r.OwnZone && o.free(r, t) == r.Limit
	})
	return res
}

// answer returns the allowed answer for the current state.
func (o *oracle) answer(r *store.Rule, now, granted int64) Result {
	fresh := first(now, maxInteger, func(t int64) bool { return o.unused(r, t) })
	if o.creditAt(now) > 0 {
		fresh = max(fresh, o.until)
	}
	reset := fresh
	if r.OwnZone {
		reset = first(now, maxInteger, func(t int64) bool { return o.free(r, t) == r.Limit && o.creditAt(t) == 0 })
	}
	limit := r.Limit
	if r.Algorithm <= store.LeakyBucket {
		limit = r.Burst
	}
	return Result{FreshAt: fresh, Decision: store.Decision{
		Allowed: true, Limit: limit, Granted: granted,
		Remaining:  o.remaining(r, now) + o.creditAt(now),
		ResetAfter: micros(reset - now),
	}}
}

func (o *oracle) refuse(r *store.Rule, now, n int64) Result {
	res := o.answer(r, now, 0)
	res.Allowed, res.Reason = false, store.ReasonLimited
	at := o.firstPass(now, func(t int64) bool { return o.passes(r, t, n) })
	leave := o.leave
	o.leave = 0
	shed := leave > 0 && o.passes(r, now, n)
	o.leave = leave
	if at >= maxInteger && (n > res.Limit-leave || r.Limit == 0) {
		res.Reason, res.RetryAfter = store.ReasonTooLarge, store.Never
	} else {
		if shed {
			res.Reason = store.ReasonHeadroom
		}
		res.RetryAfter = micros(at - now)
	}
	return res
}
