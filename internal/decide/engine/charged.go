package engine

import (
	"context"

	"github.com/headgate/headgate"
)

// askCharged charges the limits that count what is refused too, each by itself
// and in their order, before any other is asked: of envoyproxy/ratelimit's
// descriptors each adds to its count first and looks at the sum then. So they
// do not know of each other, not of a limit that refuses, and not of a shadow.
func (m multi) askCharged(ctx context.Context) {
	s := m.s
	s.pending, s.places = s.pending[:0], s.places[:0]
	for i := range s.items {
		if s.items[i].charged {
			s.pending, s.places = append(s.pending, s.charge(m.q, i)), append(s.places, i)
		}
	}
	if m.put(ctx, m.store, headgate.Independent) {
		for j, i := range s.places {
			s.results[i].Decision = s.out[j]
		}
	} else {
		m.settle(ctx, enforced, headgate.Charge, headgate.Independent)
	}
	for _, i := range s.places {
		r := &s.results[i]
		s.settleCharge(m.q, i)
		m.count(s.items[i].sort, r)
	}
}

// charge is op for a limit that counts what is refused too. A part that peeks
// adds nothing to the count. A fixed window has all of it, as what is too much
// ends with the window. Other algorithms would be in debt for far longer than
// their period, so of them it takes what is left.
func (s *multiScratch) charge(q *MultiQuery, i int) headgate.Op {
	rule := s.results[i].Rule
	op := s.op(q, i, headgate.TakeUpTo)
	if op.Kind == headgate.Peek {
		op.Cost = 0
	}
	if rule.Limit.Algorithm() == headgate.FixedWindow {
		op.Kind = headgate.Charge
	}
	op.Limit = rule.Counted()
	return op
}

// settleCharge makes the answer to a charge one of a limit: over it is who came
// over it by this request, or was before. It passes again in the next window,
// even if the cost is larger than the limit.
func (s *multiScratch) settleCharge(q *MultiQuery, i int) {
	rule, d := s.results[i].Rule, &s.results[i].Decision
	switch d.Reason {
	case headgate.FailOpen, headgate.FailClosed, headgate.NoLimit:
		return
	case headgate.OK, headgate.Limited, headgate.TooLarge, headgate.Fallback, headgate.Cached,
		headgate.Shadow, headgate.Banned, headgate.Expired:
	}
	if rule.Limit.Algorithm() != headgate.FixedWindow {
		s.settleDrained(q, i)
		return
	}
	d.Remaining -= rule.Counted().N() - rule.Limit.N()
	d.Limit = rule.Limit.Capacity()
	if d.Allowed = d.Allowed && d.Remaining >= 0; d.Allowed {
		return
	}
	d.Remaining, d.Granted, d.RetryAfter = 0, 0, d.ResetAfter
	if d.Reason != headgate.Fallback {
		d.Reason = headgate.Limited
	}
}

// settleDrained is settleCharge for what a limit had left: it refuses if that
// was less than the cost. All of a larger cost fits when all is back.
func (s *multiScratch) settleDrained(q *MultiQuery, i int) {
	d, cost := &s.results[i].Decision, s.charge(q, i).Cost
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
