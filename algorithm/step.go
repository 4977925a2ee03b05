// Package algorithm implements the algorithms as pure steps from a state, a time and a
// request to a new state and a decision. It has no clock, no locks and no floating
// point, and imports neither fmt nor net, so that it compiles to small WebAssembly.
//
// Each algorithm has a file with five functions: how much is available, take, refund,
// when a cost will fit, and when the state is fresh again. [Step] combines them in the
// same way for all, including credit.
//
// The Lua scripts of store/redis are twins of these files; both run the vectors in
// testdata/vectors/.
package algorithm

import (
	"math"
	"time"

	"github.com/headgate/headgate/store"
)

const (
	// maxInteger is the largest number in a state, 2^53-1. Up to it Lua's numbers are
	// exact.
	maxInteger = 1<<53 - 1
	// maxCount is the largest count of a window. It leaves space for debt above the
	// largest limit, 2^40, and for the sum of all sub-windows.
	maxCount = 1<<43 - 1
	// maxTime is the latest time that a step accepts, in the year 2112. Later times
	// count as maxTime.
	maxTime = 1 << 52
	// never is later than any time.
	never = math.MaxInt64
)

// State is what a store keeps for one key under one algorithm. The zero value is the
// state of an unused key. Each algorithm's file documents its numbers; all are from 0
// to 2^53-1.
type State struct {
	V [4]int64 // their meaning depends on the algorithm
	// Words is the packed list of SlidingLog, SlidingBuckets, Concurrency and Distinct;
	// nil for the others.
	Words []uint64
	// Credit is what Grant added above the limit, in tokens. It is valid before Until,
	// in microseconds since the epoch.
	Credit, Until int64
}

// Request is a request to a step.
type Request struct {
	Kind     store.Kind
	Cost     int64         // at least 0
	Duration time.Duration // as in store.Op
	Lease    int64         // as in store.Op
	// CountsUntil is as in store.Op.
	CountsUntil int64
	Member      uint64 // as in store.Op
	Leave       int64  // for Take and Peek, how many tokens must be left
}

// RequestOf returns the request that op makes. It is just small enough to be inlined.
func RequestOf(op *store.Op) (req Request) {
	req = Request{Kind: op.Kind, Cost: op.Cost, Duration: op.Duration, Lease: op.Lease, Member: op.Member, CountsUntil: op.CountsUntil}
	if op.Leave > 0 {
		req.Leave = op.Kept()
	}
	return req
}

// Result is a step's answer.
type Result struct {
	store.Decision
	// FreshAt is when the state equals that of an unused key, in microseconds since the
	// epoch. A store may forget the key then, but never earlier.
	FreshAt int64
	Wrote   bool // reports whether the state was changed
}

// Step answers req at now, in microseconds since the epoch, under a valid rule. It
// changes s only if Result.Wrote is true, and on a refusal only if the rule counts
// refusals, or its period has become shorter. Time may run backwards between calls; that never returns tokens.
func Step(r *store.Rule, s *State, now int64, req Request) Result {
	now = min(max(now, 0), maxTime)
	if r.Unlimited {
		return unlimited(req)
	}
	if r.Algorithm <= store.LeakyBucket && req.Kind == store.KindTake && s.Credit == 0 && s.V[3] == 0 && req.Cost > 0 && req.Leave == 0 {
		var res Result
		var b Bucket
		b, res.FreshAt, res.Wrote = Take(r, Bucket{s.V[0], s.V[1], s.V[2]}, now, req.Cost, &res.Decision)
		if res.Wrote {
			s.V[0], s.V[1], s.V[2] = b.Used, b.Last, b.Token
		}
		return res
	}
	if r.Algorithm == store.Distinct && mayTake(req.Kind) {
		return distinct(r, s, now, req)
	}
	switch req.Kind {
	case store.KindTake, store.KindPeek:
		if req.Leave > 0 {
			return takeLeaving(r, s, now, req)
		}
		return take(r, s, now, req)
	case store.KindTakeUpTo:
		return takeUpTo(r, s, now, req.Cost)
	case store.KindReserve:
		return reserve(r, s, now, req)
	case store.KindCharge:
		return charge(r, s, now, req.Cost)
	case store.KindRefund:
		return refundOf(r, s, now, req)
	case store.KindGrant:
		return grant(r, s, now, req)
	case store.KindRelease, store.KindRenew:
		return lease(r, s, now, req)
	case store.KindDraw:
		return draw(r, s, now, req)
	case store.KindReset:
		wrote := !isZero(s)
		*s = State{}
		return done(r, s, now, 0, wrote)
	case store.KindTimes: // a store answers that
	}
	return refuse(r, s, now, req.Cost)
}

func isZero(s *State) bool {
	return s.V == [4]int64{} && len(s.Words) == 0 && s.Credit == 0 && s.Until == 0
}

// mayTake reports whether a kind takes, or asks whether it could.
func mayTake(kind store.Kind) bool {
	switch kind {
	case store.KindTake, store.KindTakeUpTo, store.KindPeek, store.KindCharge, store.KindReserve:
		return true
	case store.KindRefund, store.KindGrant, store.KindReset, store.KindRelease, store.KindRenew, store.KindDraw, store.KindTimes:
	}
	return false
}

func unlimited(req Request) Result {
	d := store.Decision{
		Allowed: true, Reason: store.ReasonNoLimit,
		Limit: store.MaxLimit, Remaining: store.MaxLimit,
	}
	switch req.Kind {
	case store.KindTake, store.KindTakeUpTo, store.KindCharge, store.KindReserve, store.KindDraw:
		d.Granted = req.Cost
	case store.KindPeek, store.KindRefund, store.KindGrant, store.KindReset, store.KindRelease, store.KindRenew, store.KindTimes:
	}
	return Result{Decision: d}
}

// take answers Take and Peek.
func take(r *store.Rule, s *State, now int64, req Request) Result {
	n := req.Cost
	free, credit := max(available(r, s, now), -1), creditAt(s, now)
	regular, ok := split(r, n, free, credit)
	switch {
	case !ok:
		return refused(r, s, now, req)
	case n == 0 || req.Kind == store.KindPeek:
		return done(r, s, now, 0, false)
	}
	delay := turn(r, s, now)
	spend(r, s, now, regular, n-regular)
	res := took(r, s, now, n)
	res.Delay, res.Lease = micros(delay), leased(r, s, regular)
	return res
}

// split returns how much of n the limit itself covers, with credit covering the rest,
// and whether both together are enough. free is -1 for a key in debt.
func split(r *store.Rule, n, free, credit int64) (regular int64, ok bool) {
	if n <= free && (r.Limit > 0 || credit > 0) {
		return n, true
	}
	free = max(free, 0)
	if credit == 0 || n-free > credit {
		return 0, false
	}
	return min(n, free), true
}

// spend takes regular from the limit and extra from the credit.
func spend(r *store.Rule, s *State, now, regular, extra int64) {
	if s.Until <= now {
		s.Credit, s.Until = 0, 0
	}
	if s.Credit -= extra; s.Credit == 0 {
		s.Until = 0
	}
	if regular > 0 {
		add(r, s, now, regular)
	}
}

func takeUpTo(r *store.Rule, s *State, now, n int64) Result {
	free, credit := max(available(r, s, now), 0), creditAt(s, now)
	granted := min(n, free+credit)
	if granted == 0 {
		return take(r, s, now, Request{Kind: store.KindTake, Cost: min(n, 1)})
	}
	delay := turn(r, s, now)
	regular := min(granted, free)
	spend(r, s, now, regular, granted-regular)
	res := took(r, s, now, granted)
	res.Delay, res.Lease = micros(delay), leased(r, s, regular)
	return res
}

// reserve takes now, or books what a bucket will have refilled within Duration.
func reserve(r *store.Rule, s *State, now int64, req Request) Result {
	if r.Algorithm > store.LeakyBucket || req.Cost == 0 {
		return take(r, s, now, Request{Kind: store.KindTake, Cost: req.Cost})
	}
	n, wait := req.Cost, max(int64(req.Duration/time.Microsecond), 0)
	free, credit := max(available(r, s, now), -1), creditAt(s, now)
	regular, ok := split(r, n, free, credit)
	delay := turn(r, s, now)
	late := delay - wait
	if !ok && r.Algorithm == store.TokenBucket && n <= r.Burst {
		// Book: take the tokens now; they will be refilled by the time of use.
		delay = bucketFits(r, s, now, n) - now
		regular, ok, late = n, true, delay-wait
		used, last := bucketUsed(r, s, now)
		if excess := used + n*r.Token - maxInteger; excess > 0 {
			late = max(late, drained(r, last, excess)-now)
		}
	}
	if !ok || late > 0 {
		return refuseBooking(r, s, now, n, late)
	}
	spend(r, s, now, regular, n-regular)
	if r.Algorithm == store.TokenBucket && delay > 0 {
		s.V[3] = max(s.V[3], 1)
	}
	res := took(r, s, now, n)
	res.Delay = micros(delay)
	return res
}

// refuseBooking is refuse for a request whose turn would come too late, by late.
func refuseBooking(r *store.Rule, s *State, now, n, late int64) Result {
	res := refuse(r, s, now, n)
	switch {
	case res.Reason == store.ReasonTooLarge:
	case r.Algorithm == store.LeakyBucket:
		// It needs space in the queue, a turn that is soon enough, and credit that
		// lasts until then.
		if creditAt(s, now) > 0 && now+late >= s.Until {
			bare := *s
			bare.Credit, bare.Until = 0, 0
			alone := refuse(r, &bare, now, n)
			res.Reason, res.RetryAfter = alone.Reason, alone.RetryAfter
		}
		res.RetryAfter = max(res.RetryAfter, micros(late))
	case late > 0:
		res.RetryAfter = min(res.RetryAfter, micros(late))
	}
	return res
}

// charge takes n: first from the limit, then from the credit, the rest as debt.
func charge(r *store.Rule, s *State, now, n int64) (res Result) {
	free, credit := max(available(r, s, now), 0), creditAt(s, now)
	extra := min(max(n-free, 0), credit)
	regular := min(n, maxInteger) - extra // as in Lua, which cannot hold more
	if r.Limit == 0 {
		regular = 0 // a limit of 0 never pays a debt back
	}
	if regular > 0 || extra > 0 {
		spend(r, s, now, regular, extra)
		res = took(r, s, now, n)
	} else {
		res = done(r, s, now, n, false)
	}
	res.Lease = leased(r, s, regular)
	beyond := r.Limit == 0 && (n > extra || n == 0 && credit == 0) // also for a dry run, as for Take
	if available(r, s, now) < 0 || beyond {
		res.Allowed, res.Reason = false, store.ReasonLimited
		if res.RetryAfter = micros(fits(r, s, now, 0) - now); r.Limit == 0 {
			res.RetryAfter, res.Reason = store.Never, store.ReasonTooLarge
		}
	}
	return res
}

func refundOf(r *store.Rule, s *State, now int64, req Request) Result {
	left, over := int64(0), req.Duration < 0
	switch {
	case req.CountsUntil > 0:
		left = min(req.CountsUntil, maxInteger) - now
		over = left <= 0
	case req.Duration > 0:
		left = min(max(int64(req.Duration/time.Microsecond), 1), maxTime)
	}
	wrote := false
	switch {
	case req.Cost == 0 || over:
	case r.Algorithm == store.Distinct:
		wrote = s.takeBack(r, now, req.Member, left)
	default:
		wrote = sub(r, s, now, req.Cost, left)
	}
	if wrote {
		forgetUnused(r, s, now)
	}
	return done(r, s, now, 0, wrote)
}

// forgetUnused resets a state that has been fully refunded to zero, because a store may
// forget it. Otherwise its times would still hold back a clock that goes backwards.
func forgetUnused(r *store.Rule, s *State, now int64) {
	bare := *s
	bare.Credit, bare.Until = 0, 0
	if freshAt(r, &bare, now) <= now {
		s.V, s.Words = [4]int64{}, s.Words[:0]
	}
}

func grant(r *store.Rule, s *State, now int64, req Request) Result {
	lasting := int64(req.Duration / time.Microsecond)
	if req.Cost == 0 || lasting <= 0 {
		return done(r, s, now, 0, false)
	}
	if s.Until <= now {
		s.Credit, s.Until = 0, 0
	}
	s.Credit = min(s.Credit+min(req.Cost, maxCount), maxCount)
	s.Until = max(s.Until, min(now+min(lasting, maxTime), maxInteger))
	return done(r, s, now, req.Cost, true)
}

// done returns the answer that allows, from the state after the request.
func done(r *store.Rule, s *State, now, granted int64, wrote bool) Result {
	fresh := freshAt(r, s, now)
	reset := fresh
	if r.OwnZone {
		reset = ownReset(s, now)
	}
	return Result{
		Decision: store.Decision{
			Allowed: true, Limit: r.Most(), Granted: granted,
			Remaining:  remaining(r, s, now) + creditAt(s, now),
			ResetAfter: micros(reset - now),
		},
		FreshAt: fresh, Wrote: wrote,
	}
}

// took is done for a request that has taken granted. What was taken counts until the
// limit is reset, apart from credit that is left, which a refund does not return.
func took(r *store.Rule, s *State, now, granted int64) Result {
	res := done(r, s, now, granted, true)
	switch {
	case r.OwnZone:
		res.CountsUntil = ownLimitReset(s, now)
	case creditAt(s, now) > 0:
		res.CountsUntil = limitFreshAt(r, s, now)
	default:
		res.CountsUntil = res.FreshAt
	}
	return res
}

// refused is refuse for Take and Peek. A window that counts refusals adds it, as no
// more than its limit, so the answer says when the request passes if no other follows.
func refused(r *store.Rule, s *State, now int64, req Request) Result {
	counts := r.CountRefused && r.Limit > 0 && req.Kind == store.KindTake && req.Cost > 0
	if counts {
		add(r, s, now, min(req.Cost, r.Limit))
		if r.Algorithm == store.SlidingLog {
			logExcess(r, s)
		}
	}
	shortens := !counts && req.Kind == store.KindTake && req.Cost > 0 && req.Cost <= r.Limit && shorten(r, s, now, req.Cost)
	res := refuse(r, s, now, req.Cost)
	res.Wrote = counts || shortens
	return res
}

// refuse returns the answer that says when n will fit.
func refuse(r *store.Rule, s *State, now, n int64) Result {
	res := done(r, s, now, 0, false)
	res.Allowed, res.Reason = false, store.ReasonLimited
	at := fitsWithCredit(r, s, now, n)
	if at == never {
		res.Reason, res.RetryAfter = store.ReasonTooLarge, store.Never
	} else {
		res.RetryAfter = micros(at - now)
	}
	return res
}

// fitsWithCredit returns when n will fit into the limit and the credit together while
// the credit lasts, or otherwise into the limit alone.
func fitsWithCredit(r *store.Rule, s *State, now, n int64) int64 {
	if credit := creditAt(s, now); credit > 0 && n-credit <= r.Most() {
		if n <= credit {
			return now // even for a key in debt
		}
		if at := fits(r, s, now, n-credit); at < s.Until {
			return at
		}
	}
	if n > r.Most() || r.Limit == 0 {
		return never
	}
	return fits(r, s, now, n)
}

func creditAt(s *State, now int64) int64 {
	if s.Until > now {
		return s.Credit
	}
	return 0
}

// micros converts microseconds to a Duration. The largest, 2^53, still fits.
func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
