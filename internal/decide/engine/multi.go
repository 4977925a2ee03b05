package engine

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

// Part is one of several checks of the same request, such as one descriptor of an Envoy
// request. Each is matched separately.
type Part struct {
	Request rules.Request // the attributes that rules match and count by
	Cost    int64         // the cost for the limits of this part; 0 is a dry run
	Kind    headgate.Kind // headgate.Take, headgate.Peek, or headgate.Refund to return Cost
	// Rule, if not nil, is used instead of the rules that match Request, and counts by
	// Key: a limit that came with the request. In an unknown domain it does not apply.
	Rule *rules.Rule
	Key  string
}

// MultiQuery is a request with several parts.
type MultiQuery struct {
	Domain string // the namespace of the rules
	Parts  []Part // decided together
	At     int64  // in microseconds since the Unix epoch
	Door   Door   // where the request came in; see [Query]
	// Observe lets every request pass and treats all rules as if they only observed:
	// WouldRefuse shows what they would have refused.
	Observe bool
}

// MultiVerdict is the answer to a MultiQuery.
type MultiVerdict struct {
	// Allowed reports whether the request may pass: no rule refuses it, and if there
	// are rules in quota mode, at least one of their parts has quota left.
	Allowed     bool
	Known       bool // reports whether the domain has rules
	WouldRefuse int  // the number of rules that only observe and would have refused

	deciding *deciding
}

// Parts returns one verdict for each part, in order. They are valid until Release of
// the MultiVerdict, and must not be released or undone themselves. A part that is
// refused only by rules in quota mode may belong to a request that is allowed.
func (v *MultiVerdict) Parts() []Verdict {
	if v.deciding == nil {
		return nil
	}
	return v.deciding.verdicts
}

// Release returns the memory of Parts for the next decision; see [Verdict.Release].
func (v *MultiVerdict) Release() {
	if v.deciding == nil {
		return
	}
	v.deciding.release()
	v.deciding = nil
}

// DecideAll answers q. All enforced limits of all parts are charged, or none. Some
// limits are separate:
//
//   - Refunds are always made.
//   - Rules in quota mode refuse separately; see [MultiVerdict].
//   - Rules that only observe are charged if the request passes.
//   - Rules with ChargeDenied are charged whether or not the request passes.
//
// For the errors see [Engine.Decide].
func (e *Engine) DecideAll(ctx context.Context, q MultiQuery) (MultiVerdict, error) {
	d := e.begin(&Query{Domain: q.Domain, At: q.At, Endless: true})
	d.parts, d.alone, d.watches = q.Parts, false, q.Observe
	mark := Mark{Lane: d.lane}
	if e.observer != nil {
		mark.Start = e.observer.Deciding(q.At, mark.Lane)
	}
	err := d.decide(ctx)
	v := MultiVerdict{Allowed: d.allowed, Known: d.known, WouldRefuse: d.wouldRefuse, deciding: d}
	d.verdicts = d.verdicts[:0]
	first := 0
	for i := range q.Parts {
		d.verdicts = append(d.verdicts, Verdict{})
		part := &d.verdicts[i]
		next := d.conclude(part, i, first)
		part.results, first = d.results[first:next:next], next
	}
	e.tellAllRefusals(&v, &q)
	if e.observer != nil {
		e.observer.DecidedAll(ctx, mark, q, v, err)
	}
	return v, err
}
