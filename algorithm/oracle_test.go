package algorithm

import (
	"math/big"
	"time"

	"github.com/headgate/headgate/store"
)

// oracle computes what Step should return, written for clarity instead of speed:
// buckets in exact rational numbers, windows by counting again, and all times by search
// rather than by a formula.
type oracle struct {
	// Buckets: used tokens at last, under a token size of token units.
	used  *big.Rat
	last  int64
	token int64
	// gross is used without what refunds took off since the first of the requests was
	// booked that wait for their time; nil if none does. Of a token bucket.
	gross *big.Rat
	// FixedWindow: count until end, under code. SlidingWindow and
	// SlidingBuckets: counts by window number, newest the newest written to,
	// under period and width.
	count, end, code      int64
	counts                map[int64]int64
	newest, period, width int64
	buckets               int64
	// SlidingLog.
	log []logged
	// Credit is valid before until.
	credit, until int64
	// leave is what the present request must leave.
	leave int64
}

type logged struct{ at, count int64 }

func newOracle() *oracle { return &oracle{used: new(big.Rat), counts: make(map[int64]int64)} }

// first returns the first time from lo up to, but not including, hi at which a
// condition holds that stays true once it is true, or hi.
func first(lo, hi int64, holds func(t int64) bool) int64 {
	for lo < hi {
		if mid := lo + (hi-lo)/2; holds(mid) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

func ceil(x *big.Rat) *big.Int {
	q, m := new(big.Int).DivMod(x.Num(), x.Denom(), new(big.Int))
	if m.Sign() != 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

func floor(x *big.Rat) *big.Int {
	return new(big.Int).Div(x.Num(), x.Denom())
}

// usedAt returns the bucket's usage at t, in tokens.
func (o *oracle) usedAt(r *store.Rule, t int64) *big.Rat { return o.leftAt(r, t, o.used) }

// grossAt returns the gross usage at t, or nil if no booked request waits then.
func (o *oracle) grossAt(r *store.Rule, t int64) *big.Rat {
	if o.gross == nil {
		return nil
	}
	gross := o.leftAt(r, t, o.gross)
	if gross.Cmp(big.NewRat(r.Capacity, r.Token)) <= 0 {
		return nil
	}
	return gross
}

// leftAt returns what is left at t of the tokens that were used at o.last.
func (o *oracle) leftAt(r *store.Rule, t int64, used *big.Rat) *big.Rat {
	used = new(big.Rat).Set(used)
	if used.Sign() > 0 && o.token != r.Token {
		used.SetInt(ceil(used))
		used = atMost(used, big.NewRat(maxInteger, r.Token))
	}
	if ticks := t/r.Tick - o.last/r.Tick; ticks > 0 {
		leaked := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(ticks), big.NewInt(r.Leak)), big.NewInt(r.Token))
		used.Sub(used, leaked)
	}
	if used.Sign() < 0 {
		used.SetInt64(0)
	}
	return used
}

func atMost(x, most *big.Rat) *big.Rat {
	if x.Cmp(most) > 0 {
		return most
	}
	return x
}

// fixedAt returns the window that contains t.
func (o *oracle) fixedAt(r *store.Rule, t int64) (count, end int64) {
	live := (o.count > 0 || r.OwnZone) && t < o.end
	if live && o.code == fixedCode(r) {
		return o.count, o.end
	}
	if live {
		count = o.count
	}
	switch {
	case r.Anchor == store.AnchorFirstRequest:
		return count, t + r.Period
	case r.OwnZone && o.code == fixedCode(r):
		return count, o.ownEnd(r, t)
	case r.Calendar != store.NoCalendar:
		_, end = CalendarWindow(r.Calendar, r.Zone, t)
		return count, end
	}
	return count, t - t%r.Period + r.Period
}

// ownEnd walks through the windows of the zone from the last end. A caller who has
// stayed gets the first that ends after t, one who has moved the first that also ends
// long enough after the last end.
func (o *oracle) ownEnd(r *store.Rule, t int64) int64 {
	earliest := t + 1
	if start, _ := CalendarWindow(r.Calendar, r.Zone, o.end); start != o.end {
		earliest = max(earliest, o.end+min(r.Period, 48*hour))
	}
	// A state from long ago would take too many steps.
	end := max(o.end, t-2*year)
	for end < earliest {
		_, end = CalendarWindow(r.Calendar, r.Zone, end)
	}
	return end
}

func (o *oracle) logAt(r *store.Rule, t int64) (total int64) {
	for _, e := range o.log {
		if t < e.at+r.Period {
			total += e.count
		}
	}
	return total
}

// share returns floor(count·part/whole).
func share(count, part, whole int64) int64 {
	x := new(big.Int).Mul(big.NewInt(count), big.NewInt(part))
	return x.Div(x, big.NewInt(whole)).Int64()
}

// slidingUsed returns the count at t of two windows of the period under which they were
// written.
func (o *oracle) slidingUsed(t int64) int64 {
	if o.period == 0 {
		return 0
	}
	t = max(t, o.newest*o.period)
	i, off := t/o.period, t%o.period
	return share(o.counts[i-1], o.period-off, o.period) + o.counts[i]
}

func (o *oracle) bucketsUsed(e store.Edge, t int64) (used int64) {
	if o.width == 0 {
		return 0
	}
	t = max(t, o.newest*o.width)
	from := t - o.period // the window is (from, t]
	for j, count := range o.counts {
		start, end := j*o.width, (j+1)*o.width
		switch {
		case end <= from || j <= o.newest-o.buckets-1:
		case start >= from || e == store.EdgeStrict:
			used += count
		case e == store.EdgeWeighted:
			used += share(count, end-from, o.width)
		}
	}
	return used
}

// free returns what the limit alone has left at t; negative is debt.
func (o *oracle) free(r *store.Rule, t int64) int64 {
	switch r.Algorithm {
	case store.Distinct: // has tests of its own in distinct_test.go
	case store.TokenBucket, store.LeakyBucket:
		left := new(big.Rat).SetInt64(r.Burst)
		return floor(left.Sub(left, o.usedAt(r, t))).Int64()
	case store.FixedWindow:
		if o.count > 0 && t < o.end {
			return r.Limit - o.count
		}
		return r.Limit
	case store.SlidingLog, store.Concurrency:
		return r.Limit - o.logAt(r, t)
	case store.SlidingWindow:
		return r.Limit - o.slidingUsed(t)
	case store.SlidingBuckets:
	}
	return r.Limit - o.bucketsUsed(r.Edge, t)
}

// unused reports whether nothing counts at t any more.
func (o *oracle) unused(r *store.Rule, t int64) bool {
	if r.Algorithm <= store.LeakyBucket {
		return o.usedAt(r, t).Sign() == 0
	}
	if r.Algorithm == store.Concurrency && o.newest > 0 && t <= o.newest {
		return false // its names are not free yet
	}
	if r.OwnZone && o.end > 0 && t < o.end+WindowKept(o.code) {
		return false // a window of another zone would be too short
	}
	return o.free(r, t) == r.Limit
}

func (o *oracle) creditAt(t int64) int64 {
	if t < o.until {
		return o.credit
	}
	return 0
}

// waits returns how many tokens must drain before the turn of a request at t.
func (o *oracle) waits(r *store.Rule, t int64) *big.Rat {
	ahead := o.usedAt(r, t)
	return ahead.Sub(ahead, big.NewRat(max(r.DelayAfter, 1)-1, 1))
}

// late reports whether the turn of a request at t is later than MaxWait.
func (o *oracle) late(r *store.Rule, t int64) bool {
	if r.Algorithm != store.LeakyBucket || r.MaxWait == 0 {
		return false
	}
	drains := new(big.Int).Mul(big.NewInt(r.MaxWait/r.Tick), big.NewInt(r.Leak))
	return o.waits(r, t).Cmp(new(big.Rat).SetFrac(drains, big.NewInt(r.Token))) > 0
}

// open is free, but 0 for requests that would wait too long.
func (o *oracle) open(r *store.Rule, t int64) int64 {
	if o.late(r, t) {
		return min(o.free(r, t), 0)
	}
	return o.free(r, t)
}

// remaining counts requests of cost 1 that would pass in a row.
func (o *oracle) remaining(r *store.Rule, now int64) int64 {
	free := max(o.beyond(r, now), 0)
	if r.Algorithm != store.LeakyBucket || r.MaxWait == 0 || free == 0 {
		return free
	}
	drains := new(big.Int).Mul(big.NewInt(r.MaxWait/r.Tick), big.NewInt(r.Leak))
	spare := new(big.Rat).SetFrac(drains, big.NewInt(r.Token))
	more := floor(spare.Sub(spare, o.waits(r, now)))
	if more.IsInt64() {
		return min(free, more.Int64()+1)
	}
	return free
}

// beyond is open less what the present request must leave. A fixed window lends that
// evenly, rounded in favor of who it is kept for, but a class has no more than its part.
func (o *oracle) beyond(r *store.Rule, t int64) int64 {
	free := o.open(r, t)
	if o.leave == 0 {
		return free
	}
	if r.Algorithm != store.FixedWindow {
		return free - o.leave
	}
	end := o.end
	if o.count == 0 || t >= o.end {
		_, end = o.fixedAt(r, t)
	}
	kept := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(o.leave), big.NewInt(min(end-t, r.Period))), big.NewInt(r.Period))
	return min(free-ceil(kept).Int64(), r.Limit-o.leave)
}

// passes reports whether n would be taken at t.
func (o *oracle) passes(r *store.Rule, t, n int64) bool {
	free, credit := o.beyond(r, t), o.creditAt(t)
	if credit == 0 && (r.Limit == 0 || free < 0) {
		return false
	}
	return n <= max(free, 0)+credit
}

// firstPass searches before the credit ends, then after it.
func (o *oracle) firstPass(now int64, holds func(t int64) bool) int64 {
	if o.creditAt(now) > 0 {
		if t := first(now, o.until, holds); t < o.until {
			return t
		}
		return first(o.until, maxInteger, holds)
	}
	return first(now, maxInteger, holds)
}

// turn returns when the bucket will have drained.
func (o *oracle) turn(r *store.Rule, now int64) int64 {
	if r.Algorithm != store.LeakyBucket {
		return now
	}
	return first(now, maxInteger, func(t int64) bool { return o.waits(r, t).Sign() <= 0 })
}

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
