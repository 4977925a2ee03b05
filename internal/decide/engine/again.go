package engine

import (
	"context"
	"errors"
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
	if v.deciding == nil {
		return nil
	}
	claims := make([]Claim, 0, len(v.deciding.results))
	for i := range v.deciding.results {
		if r := &v.deciding.results[i]; r.Enforced {
			claims = append(claims, Claim{Rule: r.Rule.Name, Key: strings.Clone(r.Key), Cost: r.cost})
		}
	}
	return claims
}

// Again decides anew about a request that was refused, by its claims: it may
// have gone by now. Rules of a domain that are not in force any more, or only
// observe, do not count. No Observer is told, since the request has been
// counted. For the errors see [Engine.Decide].
func (e *Engine) Again(ctx context.Context, domain string, claims []Claim, at int64) (v Verdict, err error) {
	d := e.begin(domain, at)
	d.about(&Query{Cost: 1})
	d.known, v.deciding = true, d
	rs := e.rules.Load()
	for _, c := range claims {
		if rule := rs.Rule(domain, c.Rule); rule != nil && rule.Mode == rules.Enforce && rule.Percent > 0 {
			d.results = append(d.results, Result{Rule: rule, Key: c.Key, Enforced: true, role: enforce, step: enforce, cost: c.Cost})
			d.todo = 1 << enforce
		}
	}
	if x := e.exceptions.Load(); x != nil && d.except(x) {
		d.keepBans()
	}
	d.run(ctx)
	d.conclude(&v, 0, 0)
	return v, d.failure
}

// Enter takes again, when the turn of an admitted request has come, the places of
// limits of what is under way that v had taken, and that were released for the time
// of its waiting: who waits is not under way. The answer is about them alone. If it
// is a refusal, what else v has taken is given back. It has to come before v is
// released. No Observer is told. For the errors see [Engine.Decide].
func (e *Engine) Enter(ctx context.Context, v *Verdict, at int64) (entered Verdict, err error) {
	d := e.begin("", at)
	d.about(&Query{Cost: 1})
	d.known, entered.deciding = true, d
	for _, r := range v.Results() {
		if r.Decision.Lease != 0 {
			d.results = append(d.results, Result{Rule: r.Rule, Key: r.Key, Enforced: r.Enforced, role: r.role, step: r.role, cost: r.cost})
			d.todo |= 1 << r.role
		}
	}
	d.run(ctx)
	d.conclude(&entered, 0, 0)
	err = d.failure
	if !entered.Allowed {
		err = errors.Join(err, e.Undo(context.WithoutCancel(ctx), v, at))
	}
	return entered, err
}
