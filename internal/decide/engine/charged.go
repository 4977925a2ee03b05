package engine

import "github.com/headgate/headgate"

// charge makes op that of a limit that counts what is refused, too. Each is charged
// by itself and in their order, before any other limit is asked: of
// envoyproxy/ratelimit's descriptors each adds to its count first and looks at the
// sum then. So they do not know of each other, not of a limit that refuses, and not
// of a shadow. A fixed window has all of it, as what is too much ends with the window. Other algorithms would be in debt
// for far longer than their period, so of them it takes what is left. A part that
// peeks adds nothing to the count.
func (r *Result) charge(op *headgate.Op) {
	op.Limit = r.Rule.Counted()
	if op.Kind == headgate.Peek {
		op.Cost = 0
	}
	switch {
	case r.Rule.Limit.Algorithm() == headgate.FixedWindow:
		op.Kind = headgate.Charge
	case op.Kind == headgate.Take:
		op.Kind = headgate.TakeUpTo
	}
}

// charged makes the answer to a charge for p one of a limit: over it is who came
// over it by this request, or was before. It passes again in the next window,
// even if the cost is larger than the limit.
func (r *Result) charged(p *Part) {
	d := &r.Decision
	switch d.Reason {
	case headgate.FailOpen, headgate.FailClosed, headgate.NoLimit:
		return
	case headgate.OK, headgate.Limited, headgate.TooLarge, headgate.Fallback, headgate.Cached,
		headgate.Shadow, headgate.Banned, headgate.Expired:
	}
	if r.Rule.Limit.Algorithm() != headgate.FixedWindow {
		r.drained(p)
		return
	}
	d.Remaining -= r.Rule.Counted().N() - r.Rule.Limit.N()
	d.Limit = r.Rule.Limit.Capacity()
	if d.Allowed = d.Allowed && d.Remaining >= 0; d.Allowed {
		return
	}
	d.Remaining, d.Granted, d.RetryAfter = 0, 0, d.ResetAfter
	if d.Reason != headgate.Fallback {
		d.Reason = headgate.Limited
	}
}

// drained is charged for what a limit had left: it refuses if that was less than
// the cost. All of a larger cost fits when all is back.
func (r *Result) drained(p *Part) {
	d, cost := &r.Decision, int64(0)
	if p.Kind == headgate.Take {
		cost = times(p.Cost, r.cost)
	}
	partly := d.Allowed && d.Granted < cost
	if !partly && d.Allowed {
		return
	}
	d.Allowed, d.Remaining, d.Granted, d.Delay = false, 0, 0, 0
	if d.Reason == headgate.OK {
		d.Reason = headgate.Limited
	}
	if partly || cost > 1 && d.RetryAfter != headgate.Never {
		d.RetryAfter = d.ResetAfter
	}
}
