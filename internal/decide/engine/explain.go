package engine

import (
	"context"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

// ExplainQuery is a request that somebody wants to understand.
type ExplainQuery struct {
	// Domain is the namespace whose rules apply.
	Domain string
	// Parts are the request, or each of its descriptors.
	Parts []rules.Request
	// Cost is what the request takes, of the limits of each part.
	Cost int64
	// At is the time of the request in microseconds since the Unix epoch. With
	// 0 the store uses its own clock.
	At int64
	// Rule, if not empty, is the name of the only rule to be listed.
	Rule string
	// Most is how many rules that do not apply are listed for each part, of
	// those the nearest; 0 means all.
	Most int
}

// Explained is what one rule makes of a part of a request.
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
	// Overridden says that the limit, that of Rule, is one that an operator has
	// set for this key.
	Overridden bool
}

// Explanation is the answer to an ExplainQuery.
type Explanation struct {
	// Verdict is what Decide would answer to the request, if it had a single
	// part, or DecideAll. It has no Results.
	Verdict Verdict
	// Parts are those of the query.
	Parts []ExplainedPart
}

// ExplainedPart is what the rules of the domain make of a part of a request.
type ExplainedPart struct {
	// Rules are first those that apply, then the others, of which the fewest
	// conditions fail first; otherwise in the order of the files.
	Rules []Explained
	// LeftOff is how many rules that do not apply are not listed.
	LeftOff int
}

// Explain answers q. It charges nothing, and no observer hears of it. It looks
// at every rule of the domain: it is for people, not for traffic.
//
// With an error that wraps headgate.ErrUnavailable the decisions are what each
// rule's on_store_error says.
func (e *Engine) Explain(ctx context.Context, q ExplainQuery) (Explanation, error) {
	x := Explanation{Verdict: Verdict{Allowed: true, at: q.At}}
	v := &x.Verdict
	v.Decision = headgate.Decision{Allowed: true, Reason: headgate.NoLimit}
	if q.Cost < 0 {
		v.refuse(headgate.Decision{Reason: headgate.TooLarge, RetryAfter: headgate.Never})
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
			v.refuse(headgate.Decision{Reason: headgate.Limited, RetryAfter: headgate.Never})
		}
		return x, nil
	}
	rules.ExplainReplaces(parts...)
	for i, list := range parts {
		for j := range list {
			x.Parts[i].Rules = append(x.Parts[i].Rules, Explained{Explanation: list[j]})
		}
	}
	for i := range x.Parts {
		e.exceptions.Load().explain(x.Parts[i].Rules, q.At)
	}
	err := e.peek(ctx, q, x.Parts)
	x.conclude()
	x.only(q.Rule)
	return x, err
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

// peek fills in the decisions of the rules that apply.
func (e *Engine) peek(ctx context.Context, q ExplainQuery, parts []ExplainedPart) error {
	var s scratch
	var places []*Explained
	for _, part := range parts {
		for i := range part.Rules {
			x := &part.Rules[i]
			if !x.Applies {
				continue
			}
			places = append(places, x)
			s.pending = append(s.pending, headgate.Op{
				Key: x.Key, Scope: x.Rule.Scope, Limit: x.Rule.Limit,
				Cost: times(q.Cost, x.Cost), At: q.At, Kind: headgate.Peek,
			})
		}
	}
	s.room()
	if e.timeout > 0 {
		bounded, cancel := context.WithTimeout(ctx, e.timeout)
		defer cancel()
		ctx = bounded
	}
	err := ask(ctx, e.store, &s, headgate.Independent)
	for i, x := range places {
		x.Unbanned = failed(x.Rule)
		if err == nil {
			x.Unbanned = s.out[i]
		}
		if x.BannedUntil == 0 {
			x.Decision = x.Unbanned
		}
	}
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// conclude sets the verdict, as DecideAll would.
func (x *Explanation) conclude() {
	v := &x.Verdict
	quotas, left := false, false
	var refusing Verdict // what the parts without quota left say
	for _, part := range x.Parts {
		has, ok := false, true
		for i := range part.Rules {
			r := &part.Rules[i]
			result := Result{Rule: r.Rule, Decision: r.Decision, Enforced: r.Enforced}
			switch {
			case !r.Applies:
			case !r.Enforced:
				if !r.Decision.Allowed {
					v.WouldRefuse++
				}
			case r.Rule.QuotaMode && !r.Decision.Allowed && r.Decision.Reason != headgate.Banned:
				has, ok = true, false
				refusing.consider(&result)
			default:
				has = has || r.Rule.QuotaMode
				v.consider(&result)
			}
		}
		quotas, left = quotas || has, left || has && ok
	}
	if quotas && !left {
		v.consider(&Result{Rule: refusing.Rule, Decision: refusing.Decision, Enforced: true})
	}
}
