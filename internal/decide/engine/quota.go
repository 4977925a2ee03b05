package engine

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// quotaLeft reports whether any part with rules in quota mode is not refused by them,
// or no such part exists.
func (d *deciding) quotaLeft() bool {
	quotas := false
	for i := 0; i < len(d.results); {
		part, has, left := d.results[i].Part, false, true
		for ; i < len(d.results) && d.results[i].Part == part; i++ {
			if r := &d.results[i]; r.role == quota {
				has, left = true, left && r.Decision.Allowed
			}
		}
		if has && left {
			return true
		}
		quotas = quotas || has
	}
	return !quotas
}

// queues reports whether r takes a place in a queue, which cannot be given back once others
// are behind it: then all limits are looked at first, and those in quota mode, of which
// anything can be given back, take before it. See quotasFirst.
func queues(r Result) bool {
	return r.step == enforce && r.Rule.Limit.Algorithm() == store.LeakyBucket
}

// quotasFirst lets the limits in quota mode take before a queue, if everything would pass. A
// queue that refuses anyway must not hold quotas for the time that it takes to say so.
func (d *deciding) quotasFirst() {
	if !d.quotaLeft() {
		d.allowed = false
		d.todo &^= 1 << quota
		return
	}
	for i := range d.results {
		if r := &d.results[i]; r.step == enforce && !r.Decision.Allowed {
			return
		}
	}
	d.todo ^= 1<<quota | 1<<quotaFirst
	for i := range d.results {
		if r := &d.results[i]; r.step == quota {
			r.step = quotaFirst
		}
	}
}

// refundAll refuses the request if no part in quota mode has any quota left. It then
// refunds what the limits that can refuse have taken, each in the store that answered.
// Their answers show what remains after that. If another limit has refused the request,
// only quotas that were taken before it have anything to refund.
func (d *deciding) refundAll(ctx context.Context) {
	if d.allowed && d.quotaLeft() {
		return
	}
	took := d.allowed
	d.allowed = false
	for _, from := range [...]origin{fromStore, fromFallback} {
		d.pending, d.asked = d.pending[:0], d.asked[:0]
		for i := range d.results {
			r := &d.results[i]
			has := &r.Decision
			if r.step != quota && r.step != quotaFirst && (!took || r.step != enforce) || r.origin() != from || has.ResetAfter <= 0 {
				continue
			}
			if op, ok := r.refundOp(d.query.At); ok {
				d.pending, d.asked = append(d.pending, op), append(d.asked, i)
			}
		}
		if d.growOut(); len(d.pending) == 0 || !d.refundIn(ctx, from) {
			continue
		}
		for j, i := range d.asked {
			if has := &d.results[i].Decision; has.Allowed {
				has.Remaining, has.ResetAfter, has.Granted = max(d.out[j].Remaining, 0), d.out[j].ResetAfter, 0
			}
		}
	}
}

func (d *deciding) refundIn(ctx context.Context, from origin) bool {
	if from == fromFallback {
		return d.put(context.WithoutCancel(ctx), d.engine.fallback, store.Independent) == nil
	}
	if d.lost() != nil {
		return false
	}
	err := d.put(ctx, d.engine.store, store.Independent)
	if err != nil {
		d.failure = unavailable(err)
	}
	return err == nil
}

// charge sets op for a limit that counts refusals. Each is charged separately, in
// order, before any other limit: in envoyproxy/ratelimit, each descriptor adds to its
// count first and then looks at the sum. So these limits are independent of each other,
// of limits that refuse, and of shadow mode. A fixed window takes the full cost,
// because the excess ends with the window. Other algorithms would be in debt for much
// longer than their period, so they take only what is left. A part that peeks adds
// nothing.
func (r *Result) charge(op *store.Op) {
	op.Rule = r.Rule.Counted().Rule()
	if op.Kind == store.KindPeek {
		op.Cost = 0
	}
	switch {
	case r.Rule.Limit.Algorithm() == headgate.FixedWindow:
		op.Kind = store.KindCharge
	case op.Kind == store.KindTake:
		op.Kind = store.KindTakeUpTo
	}
}

// charged turns the answer to a charge for p into that of a limit: it refuses if the
// limit is exceeded after this request. Requests pass again in the next window, even if
// the cost is larger than the limit.
func (r *Result) charged(p *Part) {
	d := &r.Decision
	switch d.Reason {
	case headgate.ReasonFailOpen, headgate.ReasonFailClosed, headgate.ReasonNoLimit:
		return
	case headgate.ReasonOK, headgate.ReasonLimited, headgate.ReasonTooLarge, headgate.ReasonFallback, headgate.ReasonCached,
		store.ReasonShadow, store.ReasonBanned, headgate.ReasonExpired, store.ReasonHeadroom, store.ReasonShare:
	}
	if r.Rule.Limit.Algorithm() != headgate.FixedWindow {
		r.drained(p)
		return
	}
	d.Remaining -= r.Rule.Counted().N() - r.Rule.Limit.N()
	d.Limit = r.Rule.Limit.Burst()
	if d.Allowed = d.Allowed && d.Remaining >= 0; d.Allowed {
		return
	}
	d.Remaining, d.Granted, d.RetryAfter = 0, 0, d.ResetAfter
	if d.Reason != headgate.ReasonFallback {
		d.Reason = headgate.ReasonLimited
	}
}

// drained is charged for what a limit had left: it refuses if that was less than the
// cost. A cost above the limit fits once everything is available again.
func (r *Result) drained(p *Part) {
	d, cost := &r.Decision, int64(0)
	if p.Kind == store.KindTake {
		cost = times(p.Cost, r.cost)
	}
	partly := d.Allowed && d.Granted < cost
	if !partly && d.Allowed {
		return
	}
	d.Allowed, d.Remaining, d.Granted, d.Delay = false, 0, 0, 0
	if d.Reason == headgate.ReasonOK {
		d.Reason = headgate.ReasonLimited
	}
	if partly || cost > 1 && d.RetryAfter != headgate.Never {
		d.RetryAfter = d.ResetAfter
	}
}
