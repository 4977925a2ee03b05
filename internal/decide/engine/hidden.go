package engine

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

// Hidden reports whether clients must not learn of the rule: its action is
// ShadowBan, so its limit belongs in no header field, not even of a request
// that passes.
func (r *Result) Hidden() bool { return r.Rule.OnLimit.Action == rules.ShadowBan }

// visible reports whether a request that only hidden rules have refused is
// charged to the rule of r, as it would be if it had passed.
func (r *Result) visible() bool { return r.role == enforce && !r.Hidden() }

// hides reports whether the request is refused by hidden rules only, of those with
// this role: then it is charged to the limits that its client can see, all of them
// or none. Otherwise what is left of those would stand still, which tells the client
// of the ban. If one of them refuses, so does the verdict: the client meets that
// limit as everybody does.
func (d *deciding) hides(role step) bool {
	first := Allowed
	for i := range d.results {
		r := &d.results[i]
		if r.role != role || r.Decision.Allowed {
			continue
		}
		if o := refusal(r.Rule, &r.Decision); o.precedence() > first.precedence() {
			first = o
		}
	}
	return first == ShadowBanned
}

// pretend lets the places of a rule that limits concurrency look as if one had been
// taken to disguise the request. It was not, since nobody would give it back.
func (d *deciding) pretend(r *Result) {
	p := &d.parts[r.part]
	if d.hidden && r.Decision.Allowed && r.Rule.Concurrent() && p.Kind == headgate.Take {
		r.Decision.Remaining = max(r.Decision.Remaining-times(p.Cost, r.cost), 0)
	}
}
