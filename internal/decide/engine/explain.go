package engine

import (
	"context"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// ExplainQuery is a request to be explained.
type ExplainQuery struct {
	Domain string          // the namespace of the rules
	Parts  []rules.Request // the request, or each of its descriptors
	Cost   int64           // the cost for the limits of each part
	// At is the time of the request in microseconds since the Unix epoch. With
	// 0 the store uses its own clock.
	At   int64
	Rule string // if not empty, only the rule of this name is listed
	Most int    // how many rules that do not apply to list for each part, nearest first; 0 means all
}

// Explained is the effect of one rule on a part of a request.
type Explained struct {
	rules.Explanation
	// Decision is what the store would answer now, if the rule applies. For a rule that
	// only observes, it is the answer as if it were enforced.
	Decision store.Decision
	// BannedUntil is when a ban of this key ends, in microseconds since the Unix epoch;
	// 0 without one. With a ban, Decision is the ban, and Unbanned what the store would
	// answer without it; otherwise the two are equal.
	BannedUntil int64
	Unbanned    store.Decision
	// Whole is Unbanned for a request that may use the whole limit: it differs if the class of
	// this one must leave a part to others.
	Whole      store.Decision
	Overridden bool // the limit of Rule was set by an operator for this key
	// Marked reports whether this rule would mark the request, and Over how much is used
	// above its limit, if it never refuses.
	Marked bool
	Over   int64
}

// Explanation is the answer to an ExplainQuery.
type Explanation struct {
	// Verdict is what Decide would answer. It has no Results.
	Verdict Verdict
	Parts   []ExplainedPart // those of the query
}

// ExplainedPart is how the rules of the domain apply to a part of a request.
type ExplainedPart struct {
	// Rules lists the rules that apply, then the others, those with the fewest failing
	// conditions first; otherwise they are in the order of the files.
	Rules   []Explained
	LeftOff int // the number of rules that were not listed because they do not apply
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
	v.Decision = store.Decision{Allowed: true, Reason: headgate.ReasonNoLimit}
	if q.Cost < 0 {
		v.refuse(headgate.ReasonTooLarge)
		return x, headgate.ErrInvalidCost
	}
	parts, known := e.rules.Load().ExplainParts(q.Domain, q.Parts)
	v.Known = known
	rules.ExplainTimes(q.At, parts...)
	for i, list := range parts {
		part := ExplainedPart{}
		most := q.Most
		if q.Rule != "" {
			most = 0
		}
		parts[i], part.LeftOff = nearest(list, most)
		x.Parts = append(x.Parts, part)
	}
	if !v.Known {
		x.Parts = nil
		if e.unknown == UnknownDomainRefuse {
			v.refuse(headgate.ReasonLimited)
		}
		return x, nil
	}
	rules.ExplainReplaces(parts...)
	err := e.explain(ctx, q, parts, &x)
	x.only(q.Rule)
	return x, err
}

// explaining observes a decision and records the effect of each rule.
type explaining struct {
	rules []*Explained // of each result
}

// explain decides about a request without taking anything, and fills in x.
func (e *Engine) explain(ctx context.Context, q ExplainQuery, parts [][]rules.Explanation, x *Explanation) error {
	d := deciding{
		engine: e, explains: new(explaining), question: question{query: Query{At: q.At}, slots: slotsNow},
		Decided:  Decided{Parts: make([]Part, len(parts))},
		findings: findings{known: true}, judgement: judgement{allowed: true},
	}
	for i, list := range parts {
		d.Parts[i] = Part{Request: q.Parts[i], Cost: q.Cost, Kind: store.KindPeek}
		x.Parts[i].Rules = make([]Explained, len(list))
		var checks []rules.Check
		for j := range list {
			r := &x.Parts[i].Rules[j]
			if r.Explanation = list[j]; r.Applies {
				checks = append(checks, r.Check)
				d.explains.rules = append(d.explains.rules, r)
			}
		}
		d.matches = append(d.matches, rules.Matches{Checks: checks})
	}
	d.plan()
	d.run(ctx)
	d.askWhole(ctx)
	x.conclude(&d)
	return d.failure
}

// askWhole sets Explained.Whole. What is left for a class does not say how much is used, since a
// fixed window lends what it keeps.
func (d *deciding) askWhole(ctx context.Context) {
	d.pending, d.asked = d.pending[:0], d.asked[:0]
	for i := range d.results {
		r, to := &d.results[i], d.explains.rules[i]
		leave := r.Rule.LeaveOf(r.class)
		if to.Whole = to.Unbanned; leave == 0 || to.Unbanned.Reason == headgate.ReasonNoLimit {
			continue
		}
		d.pending, d.asked = extended(d.pending), append(d.asked, i)
		op := &d.pending[len(d.pending)-1]
		d.fill(op, r, explain)
		to.Whole.Remaining += op.Kept() // in case the store does not answer
		op.Leave = 0
	}
	if d.growOut(); d.failure != nil || d.put(ctx, d.engine.store, store.Independent) != nil {
		return
	}
	for j, i := range d.asked {
		d.explains.rules[i].Whole = d.out[j]
	}
}

// nearest sorts explanations and keeps at most most of those that do not apply.
func nearest(list []rules.Explanation, most int) ([]rules.Explanation, int) {
	rules.SortNearest(list)
	applying := 0
	for applying < len(list) && list[applying].Applies {
		applying++
	}
	if left := len(list) - applying - most; most > 0 && left > 0 {
		// A copy, so that the rest can be freed.
		return slices.Clone(list[:applying+most]), left
	}
	return list, 0
}

// only keeps the rules with the given name, if it is not empty.
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

// except records which rule replaces another, and a ban.
func (x *explaining) except(i int, rule *rules.Rule, until, at int64) {
	to := x.rules[i]
	to.Overridden, to.Rule = rule != to.Rule, rule
	if until > 0 {
		to.Enforced, to.BannedUntil, to.Decision = true, until, ban(rule, until, at)
	}
}

// listed records what a list does with the request.
func (x *explaining) listed(i int, r *Result) {
	to := x.rules[i]
	if to.Decision = r.Decision; r.Decision.Reason == store.ReasonShadow {
		to.Decision = listRefusal() // as if it were enforced
	}
	to.Unbanned = to.Decision
}

// record records an answer.
func (x *explaining) record(i int, answer *store.Decision) {
	to := x.rules[i]
	if to.Unbanned = *answer; to.BannedUntil == 0 {
		to.Decision = *answer
	}
}

// conclude sets the verdict on all parts together. Parts without quota do not matter if
// another part has some left.
func (x *Explanation) conclude(d *deciding) {
	left := d.quotaLeft()
	x.Verdict.WouldRefuse = d.wouldRefuse
	for i := range d.results {
		to := d.explains.rules[i]
		to.Class = d.results[i].class
		to.Over, to.Marked = d.results[i].Over, d.results[i].marks(times(d.Parts[d.results[i].Part].Cost, d.results[i].cost))
		if r := &d.results[i]; r.Enforced && (r.Decision.Allowed || r.role != quota || !left) {
			x.Verdict.consider(r)
		}
	}
}
