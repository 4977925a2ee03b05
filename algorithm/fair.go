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
			if res = Step(r, s, now, req); res.Reason != store.ReasonTooLarge {
				res.overShare(now, sharesAt(r, s, member, now, now+int64(paid.RetryAfter/time.Microsecond), req.Cost, share))
			}
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

// overShare turns the answer for the bucket into a refusal until at.
func (res *Result) overShare(now, at int64) {
	res.Allowed, res.Reason = false, store.ReasonShare
	if at == never { // only credit is enough, and ends before
		res.Reason, res.RetryAfter = store.ReasonTooLarge, store.Never
		return
	}
	res.RetryAfter = micros(at - now)
}

// sharesAt returns the first time at which the bucket has n tokens and their owner can pay for
// them, if nobody takes any until then. Now that is not so; at is when the owner can pay today's
// price.
//
// While the bucket refills it becomes cheaper. The owner can pay the price of each depth that
// the bucket passes through from some time on: of the deeper the later, but the bucket is there
// earlier. Half by half, this finds where the two meet.
//
//nolint:revive // as many as StepShared has
func sharesAt(r *store.Rule, s, member *State, now, at, n int64, share *store.Share) int64 {
	used, last := bucketUsed(r, s, now)
	spent, since := bucketUsed(share.Fair.Time, member, now)
	deep, low := depthOf(r, share, (r.Capacity-used)/r.Token), depthOf(r, share, available(r, s, at))
	for low < deep {
		depth := (low + deep) / 2
		free := r.Burst - ((depth+1)*r.Burst-1)/deepest(share) // the least at this depth
		filled, pays := drained(r, last, used-(r.Capacity-free*r.Token)), now
		if over := spent - (share.Fair.Time.Capacity - priceAt(r, share, depth, n)*share.Fair.Time.Token); over > 0 {
			pays = drained(share.Fair.Time, since, over)
		}
		if at = min(at, max(filled, pays)); filled <= pays {
			deep = depth
		} else {
			low = depth + 1
		}
	}
	return fitsWithCredit(r, s, at, n)
}

// priceOf returns what n tokens of r cost while so many are free: at most half a horizon, so
// that even the smallest share has one request in it.
func priceOf(r *store.Rule, share *store.Share, free, n int64) int64 {
	return priceAt(r, share, depthOf(r, share, free), n)
}

// deepest is the depth of an empty bucket: so many fractions of a doubling.
func deepest(share *store.Share) int64 { return share.Fair.Doublings << store.FairFineness }

// depthOf returns how empty r is while so many tokens are free, from 0 to deepest.
func depthOf(r *store.Rule, share *store.Share, free int64) int64 {
	if r.Burst == 0 {
		return 0
	}
	return (r.Burst - min(max(free, 0), r.Burst)) * deepest(share) / r.Burst // at most 2^53
}

// priceAt is priceOf at a depth.
func priceAt(r *store.Rule, share *store.Share, depth, n int64) int64 {
	if n == 0 {
		return 0
	}
	token, most := share.Price(), share.Fair.Time.Burst/2
	if r.Burst == 0 || n > share.Fair.Time.Burst<<store.FairFineness/token {
		return most
	}
	doubled, part := depth>>store.FairFineness, depth&(1<<store.FairFineness-1)
	price := n * token >> store.FairFineness * (1<<store.FairFineness + part) >> store.FairFineness
	if price > most>>doubled {
		return most
	}
	return max(price<<doubled, 1)
}
