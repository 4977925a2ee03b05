package algorithm

import (
	"math/big"

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
	if o.gross == nil || o.usedAt(r, t).Sign() == 0 {
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
	// A state from long ago would take too many steps: two years are a million minutes.
	end := max(o.end, earliest-3*r.Period)
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
