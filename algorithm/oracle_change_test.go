package algorithm

import (
	"maps"
	"math/big"
	"slices"

	"github.com/headgate/headgate/store"
)

func (o *oracle) add(r *store.Rule, now, n int64) {
	if n == 0 {
		return
	}
	switch r.Algorithm {
	case store.Distinct: // has tests of its own in distinct_test.go
	case store.TokenBucket, store.LeakyBucket:
		used, gross := o.usedAt(r, now), o.grossAt(r, now)
		most, tokens := big.NewRat(maxInteger, r.Token), new(big.Rat).SetInt64(n)
		if gross != nil {
			gross = atMost(gross.Add(gross, tokens), most)
		}
		o.used, o.gross = atMost(used.Add(used, tokens), most), gross
		o.last, o.token = max(now, o.last), r.Token
	case store.FixedWindow:
		if r.OwnZone && n == 0 {
			return
		}
		o.count, o.end = o.fixedAt(r, now)
		o.count, o.code = saturated(o.count, n), fixedCode(r)
	case store.SlidingLog:
		o.addLog(r, now, now, n)
	case store.Concurrency:
		o.addLease(r, now, n)
	case store.SlidingWindow:
		o.reshape(r, now, r.Period, 1)
		o.counts[o.newest] = saturated(o.counts[o.newest], n)
	case store.SlidingBuckets:
		o.reshape(r, now, r.Tick, int64(r.Buckets))
		o.counts[o.newest] = saturated(o.counts[o.newest], n)
	}
}

func saturated(a, b int64) int64 { return min(a+min(b, maxCount), maxCount) }

// shorten moves the counts to the windows of r if n fits earlier there.
func (o *oracle) shorten(r *store.Rule, now, n int64) {
	moved := *o
	switch r.Algorithm {
	case store.FixedWindow:
		if o.count == 0 || o.code == fixedCode(r) {
			return
		}
		moved.count, moved.end = o.fixedAt(r, now)
		moved.code = fixedCode(r)
	case store.SlidingWindow:
		moved.reshape(r, now, r.Period, 1)
	case store.SlidingBuckets:
		moved.reshape(r, now, r.Tick, int64(r.Buckets))
	case store.TokenBucket, store.LeakyBucket, store.SlidingLog, store.Concurrency, store.Distinct:
		return
	}
	fits := func(o *oracle) int64 {
		return o.firstPass(now, func(t int64) bool { return o.passes(r, t, n) })
	}
	if o.period == r.Period && o.width == moved.width && o.buckets == moved.buckets && r.Algorithm != store.FixedWindow {
		return
	}
	if fits(&moved) < fits(o) {
		*o = moved
	}
}

// reshape makes the window of now the newest. After a change of the limit, everything
// that counts now counts in that window.
func (o *oracle) reshape(r *store.Rule, now, width, buckets int64) {
	if o.period == r.Period && o.width == width && o.buckets == buckets {
		o.newest = max(o.newest, now/width)
		return
	}
	used := int64(0)
	if o.period != 0 {
		used = min(r.Limit-o.free(r, now), maxCount)
	}
	o.counts = map[int64]int64{now / width: used}
	o.newest, o.period, o.width, o.buckets = now/width, r.Period, width, buckets
}

// words returns the length of the log's list.
func (o *oracle) words() (n int64) {
	for _, e := range o.log {
		if n++; e.count >= logLong {
			n++
		}
	}
	return n
}

func (o *oracle) addLog(r *store.Rule, now, at, n int64) {
	o.expire(r, now)
	if n = min(n, maxCount-o.logAt(r, now)); n == 0 {
		return
	}
	if last := len(o.log) - 1; last >= 0 && (at <= o.log[last].at || o.words() > 2*r.Limit+64) {
		o.log[last].at, o.log[last].count = max(at, o.log[last].at), o.log[last].count+n
		return
	}
	o.log = append(o.log, logged{at, n})
}

// addLease issues a name that no lease had before.
func (o *oracle) addLease(r *store.Rule, now, n int64) {
	o.expire(r, now)
	if n = min(n, maxCount-o.logAt(r, now)); n == 0 {
		return
	}
	if last := len(o.log) - 1; last >= 0 && o.words() > 2*r.Limit+64 {
		o.log[last].count += n
		return
	}
	o.newest = max(now, o.newest+1)
	o.log = append(o.log, logged{o.newest, n})
}

// draw takes a quarter of what is free, at least 1 and at most n, without the credit. Its
// delay is until when it may be used.
func (o *oracle) draw(r *store.Rule, now, n, age int64) Result {
	if r.Algorithm == store.LeakyBucket || r.Algorithm == store.Concurrency || r.CountRefused || r.Limit == 0 {
		res := o.answer(r, now, 0)
		res.Allowed, res.Reason, res.RetryAfter = false, store.ReasonTooLarge, store.Never
		return res
	}
	if n == 0 {
		return o.take(r, now, 0, 0)
	}
	free := o.free(r, now)
	if free <= 0 {
		res := o.answer(r, now, 0)
		res.Allowed, res.Reason = false, store.ReasonLimited
		res.RetryAfter = micros(first(now, maxInteger, func(t int64) bool { return o.free(r, t) > 0 }) - now)
		return res
	}
	granted := min(max(free/4, 1), n)
	if o.credit = o.creditAt(now); o.credit == 0 {
		o.until = 0
	}
	until := min(now+age, maxTime)
	end := until
	switch r.Algorithm {
	case store.SlidingLog:
		o.addLog(r, now, until, granted)
	case store.FixedWindow:
		o.add(r, now, granted)
		end = o.end
	case store.SlidingWindow, store.SlidingBuckets:
		o.add(r, now, granted)
		end = (o.newest + 1) * o.width
	case store.TokenBucket, store.LeakyBucket, store.Concurrency, store.Distinct:
		o.add(r, now, granted)
	}
	res := o.took(r, now, granted)
	res.Delay = micros(min(until, end) - now)
	return res
}

// release releases part of a lease and returns how much of it was held, or 0 for a dry
// run.
func (o *oracle) release(r *store.Rule, now int64, req Request) int64 {
	if r.Algorithm != store.Concurrency || req.Cost == 0 {
		return 0
	}
	for i := range o.log {
		e := &o.log[i]
		if e.at != req.Lease || now >= e.at+r.Period {
			continue
		}
		gone := min(e.count, req.Cost)
		e.count -= gone
		o.expire(r, now)
		o.log = slices.DeleteFunc(o.log, func(e logged) bool { return e.count == 0 })
		if o.unused(r, now) {
			credit, until := o.credit, o.until
			*o = *newOracle()
			o.credit, o.until = credit, until
		}
		return gone
	}
	return 0
}

func (o *oracle) renew(r *store.Rule, now int64, req Request) Result {
	held := r.Algorithm == store.Concurrency && slices.ContainsFunc(o.log, func(e logged) bool {
		return e.at == req.Lease && now < e.at+r.Period
	})
	if !held {
		res := o.answer(r, now, 0)
		res.Allowed, res.Reason, res.RetryAfter = false, store.ReasonExpired, store.Never
		return res
	}
	if req.Cost == 0 {
		return o.answer(r, now, 0)
	}
	name := max(now, o.newest+1)
	gone := o.release(r, now, req)
	o.newest = name
	o.log = append(o.log, logged{name, gone})
	res := o.answer(r, now, gone)
	res.Lease = name
	return res
}

// leased returns the name of the newest lease.
func (o *oracle) leased(r *store.Rule, n int64) int64 {
	if r.Algorithm != store.Concurrency || n == 0 || len(o.log) == 0 {
		return 0
	}
	return o.log[len(o.log)-1].at
}

func (o *oracle) expire(r *store.Rule, now int64) {
	o.log = slices.DeleteFunc(o.log, func(e logged) bool { return now >= e.at+r.Period })
}

// denied counts a refused request. A log drops entries that no longer matter because
// the newer ones fill the limit.
func (o *oracle) denied(r *store.Rule, now, n int64) {
	o.add(r, now, n)
	for len(o.log) > 1 && o.logAt(r, now)-o.log[0].count >= r.Limit {
		o.log = o.log[1:]
	}
}

// sub returns n; left is how much longer it would have counted, or 0. A state that is
// unused afterwards is forgotten.
func (o *oracle) sub(r *store.Rule, now, n, left int64) {
	held := r.Algorithm != store.Concurrency || o.logAt(r, now) > 0
	if !held || o.unused(r, now) || !o.giveBack(r, now, n, left) {
		return
	}
	if o.unused(r, now) {
		credit, until := o.credit, o.until
		*o = *newOracle()
		o.credit, o.until = credit, until
	}
}

// later returns how many tokens were taken after a take that counts for left longer, if a
// request that was booked waits for its time. Those of a leaky bucket are more than any,
// since they have all been promised a time.
func (o *oracle) later(r *store.Rule, now, left int64) *big.Rat {
	all, waits := o.grossAt(r, now), o.gross != nil
	if r.Algorithm == store.LeakyBucket {
		all = o.usedAt(r, now)
		waits = all.Cmp(big.NewRat(r.Free+r.Token, r.Token)) > 0
	}
	if !waits || all == nil || left == 0 {
		return new(big.Rat)
	}
	ticks := big.NewInt(max((now+left)/r.Tick-max(now, o.last)/r.Tick, 0))
	later := all.Sub(all, new(big.Rat).SetFrac(ticks.Mul(ticks, big.NewInt(r.Leak)), big.NewInt(r.Token)))
	switch {
	case later.Sign() <= 0:
		return new(big.Rat)
	case r.Algorithm == store.LeakyBucket:
		return new(big.Rat).SetInt64(1 << 62)
	case r.Leak > r.Token:
		return later.Add(later, big.NewRat(r.Leak-1, r.Token))
	}
	return new(big.Rat).SetInt(ceil(later))
}

// refund reports whether it changed anything.
func (o *oracle) giveBack(r *store.Rule, now, n, left int64) bool {
	switch r.Algorithm {
	case store.Distinct: // has tests of its own in distinct_test.go
	case store.TokenBucket, store.LeakyBucket:
		back := new(big.Rat).SetInt64(n)
		if left > 0 {
			ticks := big.NewInt((now+left)/r.Tick - now/r.Tick)
			back = atMost(back, new(big.Rat).SetFrac(ticks.Mul(ticks, big.NewInt(r.Leak)), big.NewInt(r.Token)))
		}
		used, gross := o.usedAt(r, now), o.grossAt(r, now)
		later := o.later(r, now, left)
		if back = atMost(back, used); later.Sign() > 0 {
			cost := new(big.Rat).SetInt64(min(n, maxInteger/r.Token))
			back = atMost(back, cost.Sub(cost, later))
		}
		if back.Sign() <= 0 {
			return false
		}
		if gross != nil && later.Sign() == 0 {
			gross.Sub(gross, back)
		}
		o.used, o.gross = used.Sub(used, back), gross
		o.last, o.token = max(now, o.last), r.Token
	case store.FixedWindow:
		count, end := o.fixedAt(r, now)
		if left > 0 && now+left < end-r.Period/2 || r.OwnZone && count == 0 {
			return false
		}
		o.count, o.end, o.code = max(count-n, 0), end, fixedCode(r)
	case store.SlidingLog, store.Concurrency:
		return o.subLog(r, now, n, left)
	case store.SlidingWindow:
		before := *o
		before.counts = maps.Clone(o.counts)
		o.reshape(r, now, r.Period, 1)
		from := o.newest
		if left > 0 {
			from = min(max(o.takenIn(r, now, now+left), o.newest-1), o.newest)
		}
		if o.subCounts(from, o.newest-1, n) == n {
			*o = before
			return false
		}
	case store.SlidingBuckets:
		o.reshape(r, now, r.Tick, int64(r.Buckets))
		from := o.newest
		if left > 0 {
			from = min(from, o.takenIn(r, now, now+left))
		}
		o.subCounts(from, floorDiv(max(now, o.newest*o.width)-r.Period, r.Tick), n)
	}
	return true
}

// takenIn returns the window of a take that counts until t: the one whose takes end
// then. If t is not exactly such an end, and is later than the end of the one before by
// no more than a caller's error, it is that one, if it still counts.
func (o *oracle) takenIn(r *store.Rule, now, t int64) int64 {
	j := floorDiv(t-r.Period-1, o.width)
	soonest, last := j*o.width+r.Period+1, (j+1)*o.width+r.Period
	exact := t == soonest
	if r.Edge == store.EdgeStrict {
		exact = t == last
	}
	late := t-soonest < min(65_536, o.width/8) && r.Edge != store.EdgeLenient
	before := *o
	before.counts = map[int64]int64{j - 1: o.counts[j-1]}
	if late && !exact && before.free(r, now) < r.Limit {
		return j - 1
	}
	return j
}

// subCounts takes n from window from, then from older ones, newest first, and returns
// the rest of n.
func (o *oracle) subCounts(from, oldest, n int64) int64 {
	for j := from; j >= oldest && n > 0; j-- {
		gone := min(n, o.counts[j])
		o.counts[j] -= gone
		n -= gone
	}
	return n
}

// subNear takes n from the entries that count at now and are at most slack from a time,
// oldest first. If there are none, it also leaves the expired entries as they are: a
// refund that gives nothing back writes nothing, so a clock that goes back finds them.
func (o *oracle) subNear(r *store.Rule, now, about, slack, n int64) bool {
	before := slices.Clone(o.log)
	o.expire(r, now)
	rest := n
	for i := range o.log {
		if e := &o.log[i]; e.at >= about-slack && e.at <= about+slack {
			gone := min(rest, e.count)
			e.count -= gone
			rest -= gone
		}
	}
	if rest == n {
		o.log = before
		return false
	}
	o.log = slices.DeleteFunc(o.log, func(e logged) bool { return e.count == 0 })
	return true
}

// takenAbout returns when the take that counts for left longer was made, and by how much
// that may be wrong: not at all if an entry that counts has exactly that time.
func (o *oracle) takenAbout(r *store.Rule, now, left int64) (at, slack int64) {
	at = now + left - r.Period
	if slices.ContainsFunc(o.log, func(e logged) bool { return e.at == at && now < e.at+r.Period }) {
		return at, 0
	}
	return at, min(65_536, r.Period/8)
}

// subLog takes n from the take's entry and those after it, oldest first, then from
// those before it, newest first. If no entry has exactly the time of the take, entries
// shortly before it also count as the take. It reports whether it wrote anything.
func (o *oracle) subLog(r *store.Rule, now, n, left int64) bool {
	about, slack := o.takenAbout(r, now, left)
	if left > 0 && r.CountRefused {
		return o.subNear(r, now, about, slack, n)
	}
	o.expire(r, now)
	split := slices.IndexFunc(o.log, func(e logged) bool { return e.at >= about-slack })
	if left == 0 || split < 0 {
		split = len(o.log)
	}
	order := make([]int, 0, len(o.log))
	for i := split; i < len(o.log); i++ {
		order = append(order, i)
	}
	for i := split - 1; i >= 0; i-- {
		order = append(order, i)
	}
	for _, i := range order {
		gone := min(n, o.log[i].count)
		o.log[i].count -= gone
		n -= gone
	}
	o.log = slices.DeleteFunc(o.log, func(e logged) bool { return e.count == 0 })
	return true
}
