package engine

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/enum"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// Outcome is what happened to a request under one rule, as a word for metrics and
// events.
type Outcome uint8

// The outcomes.
const (
	Allowed      Outcome = iota // passed at once
	Refused                     // over the limit, answered with a refusal
	Delayed                     // passes, but has to wait for its turn
	Queued                      // over the limit, kept to be sent later
	ShadowBanned                // over the limit, answered as if it had passed
	// ShadowRefused passed, but would have been refused by a rule that only observes.
	ShadowRefused
	// Marked passed, and a rule with a soft limit, or one that never refuses, has marked
	// it. Of one rule, it may have to wait too.
	Marked
	Outcomes // number of outcomes
)

// String returns the word, such as shadow_banned.
func (o Outcome) String() string {
	return enum.Name(o, "outcome", "allowed", "refused", "delayed", "queued", "shadow_banned", "shadow_refused", "marked")
}

// Outcome returns what r's rule did with the request, as if no other rule had refused
// it.
func (r *Result) Outcome() Outcome {
	d := &r.Decision
	switch {
	case !r.Enforced && d.Reason == store.ReasonShadow:
		return ShadowRefused
	case !d.Allowed:
		return refusal(r.Rule, d)
	case r.Marked:
		return Marked
	case d.Delay > 0:
		return Delayed
	}
	return Allowed
}

// refusal returns what happens to a request that a rule refused with d. If the store
// could not answer, it is unknown whether a ban is justified. A request that can never
// pass is not kept.
func refusal(rule *rules.Rule, d *store.Decision) Outcome {
	switch action := rule.OnLimit.Action; {
	case d.Reason == headgate.ReasonFailClosed:
	case action == rules.ShadowBan:
		return ShadowBanned
	case action == rules.Queue && d.RetryAfter != headgate.Never && d.Reason != store.ReasonBanned:
		return Queued
	}
	return Refused
}

// Refuses reports whether a rule refused, kept or hid a request, or would have.
func (o Outcome) Refuses() bool { return o != Allowed && o != Delayed && o != Marked }

// precedence orders the outcomes of several rules for one request. A visible refusal
// comes first: a banned client should see the other limits as all clients do. A ban
// comes before a queue, because the request must never reach the backend.
func (o Outcome) precedence() int {
	switch o {
	case Refused:
		return 3
	case ShadowBanned:
		return 2
	case Queued:
		return 1
	case Allowed, Delayed, ShadowRefused, Marked, Outcomes:
	}
	return 0
}

// Action returns what a caller has to do with the request, as named in rules: allow,
// reject, delay, queue or shadow_ban.
func (o Outcome) Action() string {
	switch o {
	case Refused:
		return rules.Reject.String()
	case Delayed:
		return rules.Delay.String()
	case Queued:
		return rules.Queue.String()
	case ShadowBanned:
		return rules.ShadowBan.String()
	case Allowed, ShadowRefused, Marked, Outcomes:
	}
	return "allow"
}

// Outcome returns what happened to the request under all rules together.
func (v *Verdict) Outcome() Outcome {
	switch {
	case !v.Allowed && v.Rule != nil:
		return refusal(v.Rule, &v.Decision)
	case !v.Allowed:
		return Refused
	case v.Delay > 0:
		return Delayed
	case v.Marked > 0:
		return Marked
	case v.WouldRefuse > 0:
		return ShadowRefused
	}
	return Allowed
}

// first returns the refused part whose rule's action is taken, chosen as among rules;
// see [Verdict.Rule]. It is nil if no rule refused.
func first(parts []Verdict) *Verdict {
	var found *Verdict
	for i := range parts {
		p := &parts[i]
		if p.Allowed || p.Rule == nil {
			continue
		}
		if found != nil {
			was, is := found.Outcome().precedence(), p.Outcome().precedence()
			if is < was || is == was && !p.Decision.Tighter(found.Decision) {
				continue
			}
		}
		found = p
	}
	return found
}
