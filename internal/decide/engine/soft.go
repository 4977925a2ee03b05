package engine

import (
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/soft"
	"github.com/headgate/headgate/store"
)

// passes reports whether r is of a rule that never refuses: with the action Pass, and not
// banned. It has the role of rules that only observe, since it is charged for requests that
// really pass, but it is enforced.
func (r *Result) passes() bool {
	return r.role == observe && r.Enforced && r.Rule.OnLimit.Action == rules.Pass
}

// widen sets op to count by twice the limit of a rule that never refuses, as much of the
// cost as fits: what is above the limit is a debt, of one limit at most.
func (r *Result) widen(op *store.Op) {
	op.Rule = r.Rule.Wide()
	if op.Kind == store.KindTake {
		op.Kind = store.KindTakeUpTo
	}
}

// pass turns the answer to an op of widen into one that allows, about the limit itself.
func (r *Result) pass(d *store.Decision) {
	limit := r.Rule.Limit.Rule()
	if d.Reason == headgate.ReasonFallback {
		limit = localLimit(r.Rule).Rule()
	}
	r.Over = soft.Pass(d, limit.Most())
}

// marks reports whether r marks an allowed request that takes cost: it uses more of the
// limit than the rule's soft part, or is over a limit that it passes.
func (r *Result) marks(cost int64) bool {
	return r.Rule.Mark() != "" && r.Enforced && (r.Over > 0 || soft.Above(&r.Decision, r.limit().Rule(), cost, r.Rule.SoftPart()))
}

// mayMark reports whether r marks requests, if enough of its limit is used.
func (r *Result) mayMark() bool {
	return r.Rule.Mark() != "" && r.Enforced && r.role != refund && r.role != none
}

// lower gives the request the class that priorities have for requests that a limit marks, if
// one does.
func (d *deciding) lower() {
	marks := func(i int) bool {
		r := &d.results[i]
		return r.marks(times(d.Parts[r.Part].Cost, r.cost))
	}
	if !slices.ContainsFunc(d.asked, marks) {
		return
	}
	for i := range d.results {
		d.results[i].class, _ = d.results[i].class.Over()
	}
}

// Marks appends to dst the names of the rules that mark the request, each once, in the
// order of the rule files. Call it before Release.
func (v *Verdict) Marks(dst []string) []string {
	if v.Marked == 0 {
		return dst
	}
	results := v.Results()
	for i := range results {
		if r := &results[i]; r.Marked && !slices.Contains(dst, r.Rule.Mark()) {
			dst = append(dst, r.Rule.Mark())
		}
	}
	return dst
}
