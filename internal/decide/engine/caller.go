package engine

import (
	"context"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// maxCallerLimits is how many limits [Engine.CallerLimits] asks the store about.
const maxCallerLimits = 100

// CallerLimits are the limits of one caller.
type CallerLimits struct {
	Known bool // reports whether the domain has rules
	// Allowed reports whether the caller is on an allow list, and DeniedBy is the deny
	// list that has it, or nil. There are no Limits then.
	Allowed  bool
	DeniedBy *rules.Rule
	// Limits are in the order of the files. A limit that counts the caller under several
	// keys is listed once for each.
	Limits  []Explained
	LeftOff int // how many there are besides
}

// CallerLimits returns the limits that count the sender of req, whatever it requests,
// and what is left of them: see [rules.Ruleset.OfCaller]. Rules that do not hold now have none. It charges nothing and reports
// nothing to observers. at is as in [Query].
//
// With an error that wraps headgate.ErrUnavailable, the decisions are those of each
// rule's on_store_error.
func (e *Engine) CallerLimits(ctx context.Context, domain string, req rules.Request, at int64) (CallerLimits, error) {
	caller := e.rules.Load().OfCaller(domain, req)
	list := slices.DeleteFunc(caller.Limits, func(x rules.Explanation) bool { return !x.Rule.Holds(at) })
	found := CallerLimits{Known: caller.Known, Allowed: caller.Allowed, DeniedBy: caller.DeniedBy}
	if len(list) > maxCallerLimits {
		found.LeftOff = len(list) - maxCallerLimits
		list = list[:maxCallerLimits]
	}
	if len(list) == 0 {
		return found, nil
	}
	x := Explanation{Parts: make([]ExplainedPart, 1)}
	x.Verdict.Decision = store.Decision{Allowed: true, Reason: headgate.ReasonNoLimit}
	err := e.explain(ctx, ExplainQuery{Domain: domain, Parts: []rules.Request{req}, Cost: 1, At: at}, [][]rules.Explanation{list}, &x)
	found.Limits = x.Parts[0].Rules
	return found, err
}
