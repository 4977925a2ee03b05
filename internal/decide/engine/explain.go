package engine

import (
	"context"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

// ExplainQuery is a request to be explained.
type ExplainQuery struct {
	Domain string          // the namespace whose rules apply
	Parts  []rules.Request // the request, or each of its descriptors
	Cost   int64           // what the request takes, of the limits of each part
	// At is the time of the request in microseconds since the Unix epoch. With
	// 0 the store uses its own clock.
	At   int64
	Rule string // Rule, if not empty, is the name of the only rule to be listed
	Most int    // how many rules that do not apply are listed for each part, of those the nearest; 0 means all
}

// Explained is the effect of one rule on a part of a request.
type Explained struct {
	rules.Explanation
	// Decision is what the store would answer now, if the rule applies; of a
	// rule that only observes, as if it were enforced.
	Decision headgate.Decision
	// BannedUntil is when a ban of this key ends, in microseconds since the Unix
	// epoch; 0 without one. Decision is then the ban, and Unbanned what the store
	// would answer without it; else the two are the same.
	BannedUntil int64
	Unbanned    headgate.Decision
	Overridden  bool // the limit, that of Rule, is one that an operator has set for this key
}

// Explanation is the answer to an ExplainQuery.
type Explanation struct {
	// Verdict is what Decide would answer to the request, if it had a single
	// part, or DecideAll. It has no Results.
	Verdict Verdict
	Parts   []ExplainedPart // those of the query
}

// ExplainedPart is what the rules of the domain make of a part of a request.
type ExplainedPart struct {
	// Rules are first those that apply, then the others, of which the fewest
	// conditions fail first; otherwise in the order of the files.
	Rules   []Explained
	LeftOff int // how many rules that do not apply are not listed
}

// Explain answers q. It charges nothing and reports nothing to observers. It evaluates
// every rule of the domain: it is for people, not for traffic.
//
// With an error that wraps headgate.ErrUnavailable, the decisions are those of each
// rule's on_store_error.
func (e *Engine) Explain(ctx context.Context, q ExplainQuery) (Explanation, error) {
	var x Explanation
	v := &x.Verdict
	v.Allowed, v.at = true, q.At
	v.Decision = headgate.Decision{Allowed: true, Reason: headgate.NoLimit}
	if q.Cost < 0 {
		v.refuse(headgate.TooLarge)
		return x, headgate.ErrInvalidCost
	}
	var parts [][]rules.Explanation
	rs := e.rules.Load()
	for _, r := range q.Parts {
		list, known := rs.Explain(q.Domain, r)
		part := ExplainedPart{}
		most := q.Most
		if q.Rule != "" {
			most = 0
		}
		list, part.LeftOff = nearest(list, most)
		v.Known = known
		parts, x.Parts = append(parts, list), append(x.Parts, part)
	}
	if !v.Known {
		x.Parts = nil
		if e.unknown == UnknownDomainRefuse {
			v.refuse(headgate.Limited)
		}
		return x, nil
	}
	rules.ExplainReplaces(parts...)
	err := e.explain(ctx, q, parts, &x)
	x.only(q.Rule)
	return x, err
}

// explaining listens to a decision and notes what each rule makes of it.
type explaining struct {
	rules []*Explained // of each result
}

// explain decides about a request that only looks, and fills in x what comes of it.
func (e *Engine) explain(ctx context.Context, q ExplainQuery, parts [][]rules.Explanation, x *Explanation) error {
	d := deciding{engine: e, at: q.At, parts: make([]Part, len(parts)), known: true, allowed: true, explains: new(explaining)}
	for i, list := range parts {
		d.parts[i] = Part{Cost: q.Cost, Kind: headgate.Peek}
		x.Parts[i].Rules = make([]Explained, len(list))
		var checks []rules.Check
		for j := range list {
			r := &x.Parts[i].Rules[j]
			if r.Explanation = list[j]; r.Applies {
				checks = append(checks, rules.Check{Rule: r.Rule, Key: r.Key, Cost: r.Cost, Enforced: r.Enforced})
				d.explains.rules = append(d.explains.rules, r)
			}
		}
		d.matches = append(d.matches, rules.Matches{Checks: checks})
	}
	d.plan()
	d.run(ctx)
	x.conclude(&d)
	return d.failure
}

// nearest sorts explanations and leaves all but so many of those off that do
// not apply.
func nearest(list []rules.Explanation, most int) ([]rules.Explanation, int) {
	rules.SortNearest(list)
	applying := 0
	for applying < len(list) && list[applying].Applies {
		applying++
	}
	if left := len(list) - applying - most; most > 0 && left > 0 {
		// A copy, so that the rest can go.
		return slices.Clone(list[:applying+most]), left
	}
	return list, 0
}

// only leaves off all rules but those of that name, if there is one.
func (x *Explanation) only(name string) {
	if name == "" {
		return
	}
	for i := range x.Parts {
		p := &x.Parts[i]
		p.LeftOff = 0
		p.Rules = slices.DeleteFunc(p.Rules, func(r Explained) bool { return r.Rule.Name != name })
	}
}

// except notes which rule applies in place of another, and a ban.
func (x *explaining) except(i int, rule *rules.Rule, until, at int64) {
	to := x.rules[i]
	to.Overridden, to.Rule = rule != to.Rule, rule
	if until > 0 {
		to.Enforced, to.BannedUntil, to.Decision = true, until, ban(rule, until, at)
	}
}

// hear notes an answer.
func (x *explaining) hear(i int, answer *headgate.Decision) {
	to := x.rules[i]
	if to.Unbanned = *answer; to.BannedUntil == 0 {
		to.Decision = *answer
	}
}

// conclude sets the verdict: that of all parts together. Parts without quota do not
// matter if another has some left.
func (x *Explanation) conclude(d *deciding) {
	left := d.quotaLeft()
	x.Verdict.WouldRefuse = d.wouldRefuse
	for i := range d.results {
		if r := &d.results[i]; r.Enforced && (r.Decision.Allowed || r.role != quota || !left) {
			x.Verdict.consider(r)
		}
	}
}
