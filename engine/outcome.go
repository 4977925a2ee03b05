package engine

import (
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/rules"
)

// Outcome is what became of a request under one rule, in a word for metrics
// and events.
type Outcome uint8

// The outcomes.
const (
	// Allowed passed at once.
	Allowed Outcome = iota
	// Refused was over the limit and is answered with a refusal.
	Refused
	// Delayed passes, but has to wait for its turn.
	Delayed
	// Queued was over the limit and is kept to be sent later.
	Queued
	// ShadowBanned was over the limit and is answered as if it had passed.
	ShadowBanned
	// ShadowRefused passed, but would have been over the limit of a rule that
	// only observes.
	ShadowRefused
	// Outcomes is how many there are.
	Outcomes
)

// String returns the word, such as shadow_banned.
func (o Outcome) String() string {
	switch o {
	case Allowed:
		return "allowed"
	case Refused:
		return "refused"
	case Delayed:
		return "delayed"
	case Queued:
		return "queued"
	case ShadowBanned:
		return "shadow_banned"
	case ShadowRefused:
		return "shadow_refused"
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Outcome says what the rule of r made of the request, had no other rule
// refused it.
func (r *Result) Outcome() Outcome {
	d := &r.Decision
	switch {
	case !r.Enforced && d.Reason == headgate.Shadow:
		return ShadowRefused
	case !d.Allowed:
		return outcomeOf(r.Rule.OnLimit.Action)
	case d.Delay > 0:
		return Delayed
	}
	return Allowed
}

// outcomeOf returns what becomes of a request over the limit.
func outcomeOf(a rules.Action) Outcome {
	switch a {
	case rules.Queue:
		return Queued
	case rules.ShadowBan:
		return ShadowBanned
	case rules.Reject, rules.Delay:
		return Refused
	}
	return Refused
}

// Outcome says what became of the request, under all rules together.
func (v *Verdict) Outcome() Outcome {
	switch {
	case !v.Allowed && v.Rule != nil:
		return outcomeOf(v.Rule.OnLimit.Action)
	case !v.Allowed:
		return Refused
	case v.Delay > 0:
		return Delayed
	case v.WouldRefuse > 0:
		return ShadowRefused
	}
	return Allowed
}

// Outcome says what became of the request: of a refusal what the first part
// that was refused says.
func (v *MultiVerdict) Outcome() Outcome {
	parts := v.Parts()
	if !v.Allowed {
		for i := range parts {
			if !parts[i].Allowed {
				return parts[i].Outcome()
			}
		}
		return Refused
	}
	for i := range parts {
		if parts[i].Allowed && parts[i].Delay > 0 {
			return Delayed
		}
	}
	if v.WouldRefuse > 0 {
		return ShadowRefused
	}
	return Allowed
}
