package engine

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

// Part is one of several questions about the same request, such as one
// descriptor of an Envoy request. Each is matched separately.
type Part struct {
	Request rules.Request // has the attributes that rules match and count by
	Cost    int64         // what the request takes of the limits of this part; 0 is a dry run
	Kind    headgate.Kind // headgate.Take, headgate.Peek, or headgate.Refund to give Cost back.
	// Rule, if not nil, is asked about in place of those that match Request,
	// and counts by Key: a limit that came with the request. In an unknown
	// domain it does not apply.
	Rule *rules.Rule
	Key  string
}

// MultiQuery is what a door asks if a request has several parts.
type MultiQuery struct {
	Domain string // the namespace whose rules apply
	Parts  []Part // decided together
	At     int64  // the time of the request in microseconds since the Unix epoch
	Door   Door   // where the request came in; see [Query]
	// Observe lets every request pass and treats all rules as if they only
	// observed: WouldRefuse says what they would have done.
	Observe bool
}

// MultiVerdict is the answer to a MultiQuery.
type MultiVerdict struct {
	// Allowed reports whether the request may pass: no rule refuses it, and if
	// there are rules in quota mode, one of the parts they apply to has quota
	// left.
	Allowed     bool
	Known       bool // reports whether the domain has rules
	WouldRefuse int  // how many rules that only observe would have refused

	deciding *deciding
}

// Parts returns one verdict for each part, in their order. They are good until
// Release of the MultiVerdict, and must not be released or undone themselves.
// A part that is refused only by rules in quota mode may belong to a request
// that is allowed.
func (v *MultiVerdict) Parts() []Verdict {
	if v.deciding == nil {
		return nil
	}
	return v.deciding.verdicts
}

// Release hands the memory behind Parts back for the next decision; see
// [Verdict.Release].
func (v *MultiVerdict) Release() {
	if v.deciding == nil {
		return
	}
	v.deciding.release()
	v.deciding = nil
}

// DecideAll answers q. All enforced limits of all parts are charged, or none
// is. Three kinds of limits are separate:
//
//   - Refunds cannot be refused, so nothing holds them back.
//   - Rules in quota mode refuse by themselves; see [MultiVerdict].
//   - Rules that only observe are charged if the request passes.
//   - Rules with ChargeDenied are charged whatever becomes of the request.
//
// Errors are as of [Engine.Decide].
func (e *Engine) DecideAll(ctx context.Context, q MultiQuery) (MultiVerdict, error) {
	d := e.begin(q.Domain, q.At)
	d.parts, d.watches = q.Parts, q.Observe
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
	if e.observer != nil {
		e.observer.DecidedAll(ctx, mark, q, v, err)
	}
	return v, err
}
