package door

import "time"

// Readiness is what GET /readyz tells. The process is ready if it is not
// draining, has its rules and reaches its store, where it cannot do without.
type Readiness struct {
	// Draining is true once the process has been asked to stop.
	Draining bool
	// Store is nil if the store answers.
	Store error
	// StoreMayFail is true for a store that many processes share. When it is
	// gone each rule says what happens, which is no reason to take this
	// process, and with it all others, away from its callers.
	StoreMayFail bool
	// Rules are those in force.
	Rules RulesState
}

// RulesState says which rules are in force and how the last reload went.
type RulesState struct {
	Domains, Rules, Files int
	// LoadedAt is when the rules in force were read.
	LoadedAt time.Time
	// FailedAt and Failure are of the last reload if it failed; the rules in
	// force are then older ones.
	FailedAt time.Time
	Failure  string
	// Waiting is true as long as the first rules of a control plane have not
	// come.
	Waiting bool
	// Succeeded and Failed count the times that rules were read.
	Succeeded, Failed uint64
}

// Ready reports whether requests should be sent here.
func (r *Readiness) Ready() bool {
	return !r.Draining && !r.Rules.Waiting && (r.Store == nil || r.StoreMayFail)
}
