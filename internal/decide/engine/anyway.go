package engine

import (
	"context"
	"slices"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// RefusesAnyway reports whether the limits, bans and lists that do not depend on claims
// reject q. It takes nothing. It is false if the store does not answer, and for a shadow
// ban or a queue, whose answer depends on who asks, and where claims may exempt q.
func (e *Engine) RefusesAnyway(ctx context.Context, q Query) bool {
	var m rules.Matches
	set := e.rules.Load()
	if set.ClaimsExempt(q.Domain) {
		return false
	}
	known := set.Match(q.Domain, q.Request, &m)
	m.Checks = slices.DeleteFunc(m.Checks, func(c rules.Check) bool { return !c.Enforced || c.Rule.ReadsClaims() })
	if !known || len(m.Checks) == 0 {
		return false
	}
	q.Kind, q.Matched = store.KindPeek, &Matched{Known: known, Checks: m.Checks}
	d, v := e.begin(&q), Verdict{}
	err := d.decide(ctx)
	d.conclude(&v)
	d.forget()
	defer v.Release()
	return err == nil && !v.Allowed && v.Outcome() == Refused
}
