package engine

import (
	"context"
	"strings"

	"github.com/headgate/headgate/internal/rules"
)

// Claim is what a request takes of one limit, kept for a later decision about
// the same request.
type Claim struct {
	// Rule is the name of the rule, Key what it counts by.
	Rule, Key string
	// Cost is what is taken.
	Cost int64
}

// Claims returns those of the limits that count, for [Engine.Again]. It has to
// come before Release; the claims are good after it.
func (v *Verdict) Claims() []Claim {
	if v.scratch == nil {
		return nil
	}
	claims := make([]Claim, 0, len(v.scratch.results))
	for i := range v.scratch.results {
		if r := &v.scratch.results[i]; r.Enforced {
			cost := v.scratch.matches[0].Checks[i].Cost
			claims = append(claims, Claim{Rule: r.Rule.Name, Key: strings.Clone(r.Key), Cost: cost})
		}
	}
	return claims
}

// Again decides anew about a request that was refused, by its claims: it may
// have gone by now. Rules of a domain that are not in force any more, or only
// observe, do not count. No Observer is told, since the request has been
// counted. For the errors see [Engine.Decide].
func (e *Engine) Again(ctx context.Context, domain string, claims []Claim, at int64) (Verdict, error) {
	s, _ := e.scratch.Get().(*scratch)
	v := Verdict{Allowed: true, Known: true, at: at, pool: &e.scratch, scratch: s}
	v.Decision.Allowed = true
	rs, checks := e.rules.Load(), s.matches[0].Checks[:0]
	for _, c := range claims {
		if rule := rs.Rule(domain, c.Rule); rule != nil && rule.Mode == rules.Enforce && rule.Percent > 0 {
			checks = append(checks, rules.Check{Rule: rule, Key: c.Key, Cost: c.Cost, Enforced: true})
		}
	}
	s.matches[0].Checks, s.results = checks, s.results[:0]
	if x := e.exceptions.Load(); x != nil && s.except(x, at) {
		for i := range s.results {
			v.consider(&s.results[i])
		}
		return v, nil
	}
	s.fill()
	return v, e.enforce(ctx, Query{Domain: domain, Cost: 1, At: at}, &v)
}
