package algorithm

import (
	"time"

	"github.com/headgate/headgate/store"
)

// A fair share: a request must be able to pay for its tokens with the time of its owner, at a
// price that the level of the shared bucket says; see store.Fair. Both states are those of
// token buckets, and both steps are those of Take, Peek, Charge and Refund.

// StepShared is [Step] for a request that takes from a share. member is the state of the owner's
// time, and paid the result of its step.
//
//nolint:revive // those of Step, and a second state
func StepShared(r *store.Rule, s, member *State, now int64, req Request, share *store.Share) (res, paid Result) {
	now = min(max(now, 0), maxTime)
	f := share.Fair
	price := priceOf(r, share, available(r, s, now), req.Cost)
	switch req.Kind {
	case store.KindCharge:
		res = Step(r, s, now, req)
		paid = Step(f.Time, member, now, Request{Kind: store.KindCharge, Cost: price})
	case store.KindRefund:
		if req.CountsUntil == 0 && req.Duration < 0 {
			req.Cost = 0 // the take has expired
		}
		res = Step(r, s, now, req)
		price = priceOf(r, share, available(r, s, now), req.Cost) // as for a take of just now
		paid = Step(f.Time, member, now, Request{Kind: store.KindRefund, Cost: price})
	case store.KindTake, store.KindPeek:
		if paid = Step(f.Time, member, now, Request{Kind: store.KindPeek, Cost: price}); !paid.Allowed {
			req.Kind = store.KindPeek
			res = overShare(Step(r, s, now, req), paid.RetryAfter)
			break
		}
		if res = Step(r, s, now, req); res.Wrote {
			paid = Step(f.Time, member, now, Request{Kind: store.KindTake, Cost: price})
		}
	case store.KindTakeUpTo, store.KindGrant, store.KindReset, store.KindReserve, store.KindRelease, store.KindRenew, store.KindDraw, store.KindTimes:
		return Step(r, s, now, req), paid
	}
	each := priceOf(r, share, available(r, s, now), 1)
	res.Remaining = min(res.Remaining, paid.Remaining/each)
	return res, paid
}

// overShare turns the answer for the bucket into a refusal of who cannot pay before wait is
// over.
func overShare(res Result, wait time.Duration) Result {
	res.Allowed = false
	if res.Reason == store.ReasonTooLarge {
		return res
	}
	res.Reason, res.RetryAfter = store.ReasonShare, max(res.RetryAfter, wait)
	return res
}

// priceOf returns what n tokens of r cost while so many are free: at most half a horizon, so
// that even the smallest share has one request in it.
func priceOf(r *store.Rule, share *store.Share, free, n int64) int64 {
	if n == 0 {
		return 0
	}
	f := share.Fair
	token, most := share.Price(), f.Time.Burst/2
	if r.Burst == 0 || n > f.Time.Burst<<store.FairFineness/token {
		return most
	}
	at := (r.Burst - min(max(free, 0), r.Burst)) * (f.Doublings << store.FairFineness) / r.Burst // at most 2^53
	doubled, part := at>>store.FairFineness, at&(1<<store.FairFineness-1)
	price := n * token >> store.FairFineness * (1<<store.FairFineness + part) >> store.FairFineness
	if price > most>>doubled {
		return most
	}
	return max(price<<doubled, 1)
}
