package engine

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/rules"
)

// Claim is the share of one limit that a request takes, kept for a later decision about
// the same request.
type Claim struct {
	Rule, Key string // the name of the rule, and its key
	Cost      int64  // the amount taken
	Given     string // what the request gave of the limit; see rules.Rule.GivenText
	Member    uint64 // the value that a rule with Values counts; else 0
	Class     uint8  // the index of the request's class, for a rule with Headroom
	Owner     string // whose share of the limit it is, for a rule with Fair; else empty
	Weight    int64  // of the owner, as it was then; 0 without a share
}

// Claims returns the claims on enforced limits, for [Engine.Again]. Call it before
// Release; the claims stay valid afterwards.
func (v *Verdict) Claims() []Claim {
	if v.deciding == nil {
		return nil
	}
	claims := make([]Claim, 0, len(v.deciding.results))
	for i := range v.deciding.results {
		if r := &v.deciding.results[i]; r.Enforced {
			c := Claim{
				Rule: r.Rule.Name, Key: strings.Clone(r.Key), Cost: r.cost, Given: r.Rule.GivenText(), Member: r.member, Class: r.class.Index,
			}
			if r.share != nil {
				c.Owner, c.Weight = strings.Clone(r.share.Of), r.share.Weight
			}
			claims = append(claims, c)
		}
	}
	return claims
}

// Again decides again about a refused request, by its claims: the request itself may no
// longer exist. Rules of a domain that are no longer active, or only observe its key, do not
// count; nor does a rule that counts values only since then, as the claim has none. A rule that
// is shared fairly only since then is first come, first served. None counts if its key is on an
// allow list now. No Observer is called, because the request has already
// been counted. For the errors see [Engine.Decide].
func (e *Engine) Again(ctx context.Context, domain string, claims []Claim, at int64) (v Verdict, err error) {
	d := e.begin(&Query{Domain: domain, Part: Part{Cost: 1}, At: at, Waits: true})
	d.known = true
	rs := e.rules.Load()
	if slices.ContainsFunc(claims, func(c Claim) bool {
		rule := rs.Rule(domain, c.Rule)
		return rule != nil && rs.Exempts(rule, c.Key)
	}) {
		claims = nil
	}
	for _, c := range claims {
		rule := rs.Rule(domain, c.Rule)
		if rule == nil || !rule.Enforces(c.Key) || !rule.Holds(at) || rule.Values != nil && c.Member == 0 {
			continue
		}
		rule = rule.ForKey(c.Key).WithGiven(c.Given)
		r := resultOf(&rules.Check{
			Rule: rule, Key: c.Key, Cost: c.Cost, Member: c.Member, Enforced: true, Class: rules.Class{Index: c.Class}, Share: rule.ShareOf(c.Owner, c.Weight),
		})
		if r.role = enforce; rule.OnLimit.Action == rules.Pass {
			r.role = observe
		}
		r.step = r.role
		d.results = append(d.results, r)
		d.todo |= 1 << r.step
	}
	if x := e.exceptions.Load(); x != nil && d.except(x) {
		d.keepBans()
	}
	d.defers = rs.HasConcurrent() && d.mayWait()
	d.run(ctx)
	d.conclude(&v)
	return v, d.failure
}

// Defers reports whether [Engine.Enter] must be called before the request of v
// continues.
func (v *Verdict) Defers() bool { return v.Allowed && v.deciding != nil && v.deciding.defers }

// Enter takes the concurrency slots of an admitted request when its turn has come. The
// decision has only checked whether one is free: a waiting request is not in progress.
// If none is free any more, v becomes the refusal of those limits, and the rest of what
// v has taken is refunded. Call it before Release; it does nothing if v does not defer.
// at is now, in microseconds since the Unix epoch. No Observer is called. For the
// errors see [Engine.Decide].
func (e *Engine) Enter(ctx context.Context, v *Verdict, at int64) error {
	if !v.Defers() {
		return nil
	}
	was, d := v.deciding, e.begin(&Query{Part: Part{Cost: v.deciding.Parts[0].Cost}, At: at})
	defer d.release()
	d.known = true
	for i := range was.results {
		if r := &was.results[i]; r.Rule.Concurrent() {
			d.results = append(d.results, Result{Rule: r.Rule, Key: r.Key, Enforced: r.Enforced, role: r.role, step: r.role, cost: r.cost, class: r.class})
			d.todo |= 1 << r.role
		}
	}
	d.run(ctx)
	err, next := d.failure, 0
	for i := range was.results {
		if r := &was.results[i]; r.Rule.Concurrent() {
			r.Decision, r.Over = d.results[next].Decision, d.results[next].Over
			next++
		}
	}
	if was.defers, was.allowed = false, d.allowed; !d.allowed {
		err = errors.Join(err, e.Refund(context.WithoutCancel(ctx), v, at))
		was.keep(func(r *Result) bool { return r.Rule.Concurrent() })
	}
	*v = Verdict{}
	was.conclude(v)
	return err
}
