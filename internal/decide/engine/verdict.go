package engine

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// Result is the answer of one limit that applied to a request.
type Result struct {
	Rule *rules.Rule // the rule whose limit it is
	// Key is the key it counts by, for rules.SplitKey. It is valid until Release; clone
	// it to keep it longer.
	Key string
	// Decision is the limit's answer. For a rule that only observes and would have
	// refused it is {Allowed: true, Reason: Shadow}.
	Decision store.Decision
	Enforced bool  // false for a rule that only observes
	Marked   bool  // reports whether the rule marks the request, which passes
	Over     int64 // how much is used above the limit, under a rule that never refuses
	Part     int32 // the index of the part, if the query has several

	role    step   // the step for limits of this type
	step    step   // the step in which the limit is checked, or none
	settled bool   // by the response; see [Engine.SettleCosts]
	cost    int64  // for a request of cost 1
	member  uint64 // of a rule that counts values
	class   rules.Class
	share   *store.Share // of a rule that is shared fairly
}

// resultOf returns a Result about c, without an answer.
func resultOf(c *rules.Check) Result {
	return Result{Rule: c.Rule, Key: c.Key, Enforced: c.Enforced, cost: c.Cost, member: c.Member, class: c.Class, share: c.Share}
}

// Class returns the name of the request's class, or "" if the rule keeps nothing for any.
func (r *Result) Class() string { return r.Rule.ClassName(r.class) }

// Owner returns whose fair share of the limit the request takes, as [Claim] has it. It is empty
// if the rule is not shared fairly.
func (r *Result) Owner() string {
	if r.share == nil {
		return ""
	}
	return r.share.Of
}

// Cost returns what a request of cost 1 takes of the limit. It may be set by the
// request, if the rule says so.
func (r *Result) Cost() int64 { return r.cost }

// CostOf returns what a request of a cost takes of the limit, at most math.MaxInt64.
func (r *Result) CostOf(cost int64) int64 { return times(cost, r.cost) }

// Verdict is the answer to a Query under all limits that apply.
type Verdict struct {
	// Allowed reports whether the request may pass: no rule refuses it, and if there are
	// parts with rules in quota mode, at least one of them has quota left.
	Allowed     bool
	Known       bool // reports whether the domain has rules
	WouldRefuse int  // the number of rules that only observe and would have refused
	Marked      int  // the number of limits that mark the request, if it is allowed; see Marks
	// Rule is the rule that refused or, if the request is allowed, the most restrictive
	// one. It is nil if no enforced limit applied. If several refused, it is the one
	// whose action is taken: Reject before ShadowBan before Queue, and among equals the
	// one that refuses for longest. Of several parts, it is that of the part that
	// refused, chosen likewise, even if another has quota left, or else of the first
	// part that has one.
	Rule *rules.Rule
	// Decision is the decision of Rule. If Rule is nil, it is {Allowed: true, Reason:
	// NoLimit}, or a refusal with RetryAfter Never in an unknown domain that is
	// refused.
	Decision store.Decision
	// Delay is how long an allowed request has to wait for its turn: the longest delay
	// of all limits that apply.
	Delay time.Duration

	at       int64
	deciding *deciding
	results  []Result // for one of several parts, which has no deciding
}

// Results returns the answers of all limits that applied, in the order of the rule
// files. The slice is valid until Release.
func (v *Verdict) Results() []Result {
	if v.deciding == nil {
		return v.results
	}
	return v.deciding.results
}

// Parts returns one verdict for each of the Parts of the query, in order. They are valid
// until Release, and must not be released or undone themselves. A part that is refused only
// by rules in quota mode may belong to a request that is allowed.
func (v *Verdict) Parts() []Verdict {
	if v.deciding == nil || v.deciding.alone {
		return nil
	}
	return v.deciding.verdicts
}

// Headers returns the dialect of header fields that the domain has chosen, or "" if
// there is none or no limit applied. Call it before Release.
func (v *Verdict) Headers() string {
	if results := v.Results(); len(results) > 0 {
		return results[0].Rule.Headers
	}
	return ""
}

// Release returns the memory of Results for the next decision. The other fields stay
// valid. Forgetting it only costs an allocation. A second Release of the same Verdict
// does nothing, but do not call Results on a copy of a released Verdict.
func (v *Verdict) Release() {
	if v.deciding == nil {
		return
	}
	v.deciding.release()
	v.deciding = nil
}

// consider takes the result of an enforced rule into account.
func (v *Verdict) consider(r *Result) {
	d := &r.Decision
	if !d.Allowed {
		v.considerRefusal(r)
		return
	}
	if !v.Allowed && v.Rule != nil {
		return
	}
	v.Delay = max(v.Delay, d.Delay)
	switch {
	case v.Rule == nil:
	case d.Reason == headgate.ReasonNoLimit:
		return
	case v.Decision.Reason != headgate.ReasonNoLimit && !d.Tighter(v.Decision):
		return
	}
	v.Rule, v.Decision = r.Rule, *d
}

// considerRefusal takes the result of an enforced rule that refused into account.
func (v *Verdict) considerRefusal(r *Result) {
	if !v.Allowed && v.Rule != nil {
		was, is := refusal(v.Rule, &v.Decision).precedence(), refusal(r.Rule, &r.Decision).precedence()
		if is < was || is == was && !r.Decision.Tighter(v.Decision) {
			return
		}
	}
	v.Allowed, v.Delay = false, 0
	v.Rule, v.Decision = r.Rule, r.Decision
}

// Refuser returns the result of Rule that refused: the request waits for its key. Of
// several, it is the one that refuses for longest; it is nil if Rule did not refuse.
// Call it before Release.
func (v *Verdict) Refuser() (found *Result) {
	results := v.Results()
	for i := range results {
		r := &results[i]
		if r.Rule == v.Rule && r.Enforced && !r.Decision.Allowed && (found == nil || r.Decision.RetryAfter == v.Decision.RetryAfter) {
			found = r
		}
	}
	return found
}

// refuse makes v a refusal without a rule.
func (v *Verdict) refuse(why headgate.Reason) {
	v.Allowed, v.Decision = false, store.Decision{Reason: why, RetryAfter: headgate.Never}
}

// elapsed returns the time between two readings in microseconds; 0 if either is unknown
// or the clock went backwards.
func elapsed(from, to int64) time.Duration {
	if from == 0 || to <= from {
		return 0
	}
	return time.Duration(to-from) * time.Microsecond
}
