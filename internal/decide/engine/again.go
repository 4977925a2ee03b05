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
	Rule, Key string // the name of the rule, and what it counts by
	Cost      int64  // what is taken
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

// Again decides again about a request that was refused, by its claims: it may
// have gone by now. Rules of a domain that are no longer active, or only
// observe, do not count. No Observer is called, since the request has been
// counted. For the errors see [Engine.Decide].
func (e *Engine) Again(ctx context.Context, domain string, claims []Claim, at int64) (v Verdict, err error) {
	d := e.begin(domain, at)
	d.about(&Query{Cost: 1, Waits: true})
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
	d.defers = rs.HasConcurrent() && d.mayWait()
	d.run(ctx)
	d.conclude(&v, 0, 0)
	return v, d.failure
}

// Defers reports whether [Engine.Enter] has to be called before the request of v goes
// on.
func (v *Verdict) Defers() bool { return v.Allowed && v.deciding != nil && v.deciding.defers }

// Enter takes, when the turn of an admitted request has come, its slots of limits of
// concurrency. The decision has only checked whether one is free: a waiting request is
// not in progress. If none is free any more, v becomes the refusal of those limits, and
// the rest of what it has taken is refunded. Call it before Release; it does nothing
// if v does not defer. at is now, in microseconds since the Unix epoch. No Observer is
// called. For the errors see [Engine.Decide].
func (e *Engine) Enter(ctx context.Context, v *Verdict, at int64) error {
	if !v.Defers() {
		return nil
	}
	was, d := v.deciding, e.begin("", at)
	defer d.release()
	d.about(&Query{Cost: was.one[0].Cost})
	d.known = true
	for i := range was.results {
		if r := &was.results[i]; r.Rule.Concurrent() {
			d.results = append(d.results, Result{Rule: r.Rule, Key: r.Key, Enforced: r.Enforced, role: r.role, step: r.role, cost: r.cost})
			d.todo |= 1 << r.role
		}
	}
	d.run(ctx)
	err, next := d.failure, 0
	for i := range was.results {
		if r := &was.results[i]; r.Rule.Concurrent() {
			r.Decision = d.results[next].Decision
			next++
		}
	}
	if was.defers = false; !d.allowed {
		err = errors.Join(err, e.Undo(context.WithoutCancel(ctx), v, at))
		was.keep(func(r *Result) bool { return r.Rule.Concurrent() })
	}
	*v = Verdict{deciding: was}
	was.conclude(v, 0, 0)
	return err
}
