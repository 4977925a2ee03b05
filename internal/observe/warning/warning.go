// Package warning notices early that something is wrong with the traffic of a rule: one
// key that is refused again and again, a rule near its limit for most of its keys, and a
// sudden rise of new keys.
//
// It sees every decision, in a fixed amount of memory, and looks at what it has seen once
// a second. It tells nobody: [Observer.Look] returns what has begun and what has ended.
package warning

import (
	"cmp"
	"time"

	"github.com/headgate/headgate/internal/base/enum"
	"github.com/headgate/headgate/internal/rules"
)

// Kind is what a warning is about.
type Kind uint8

// The kinds.
const (
	// KeyRefused: a large share of the requests of one key has been refused for a while.
	KeyRefused Kind = iota
	// RuleNearLimit: most keys of a rule, or the one count of a rule without a key, have
	// used a large share of their limit.
	RuleNearLimit
	// NewKeys: far more keys than usual are new.
	NewKeys
	Kinds // number of kinds
)

// String returns the name that settings and messages use, such as key_refused.
func (k Kind) String() string {
	return enum.Name(k, "kind", "key_refused", "rule_near_limit", "new_keys")
}

// Settings say when to warn. Make them with [Default].
type Settings struct {
	// KeyRefused warns of a key if at least Share percent of its requests, and Refusals in
	// number, were refused in the last For, and some in every fifth of it.
	KeyRefused struct {
		Share, Refusals int64
		For             time.Duration // at least 5 s
	}
	// RuleNearLimit are the used shares of a limit that are warned of, in percent and
	// ascending; at most [MaxLevels]. 100 means that requests are refused.
	RuleNearLimit []int64
	// NewKeys warns if at least Least keys per second are new, and Factor times as many
	// as in the mean of the last 10 minutes.
	NewKeys struct{ Factor, Least int64 }
	Again   time.Duration // a warning that has ended is not repeated within this time
	Off     [Kinds]bool   // kinds that are not looked for
}

// MaxLevels is the maximum number of levels in [Settings].RuleNearLimit.
const MaxLevels = 4

// Default returns the settings that apply where nothing else is set.
func Default() Settings {
	s := Settings{RuleNearLimit: []int64{75, 90, 100}, Again: 15 * time.Minute}
	s.KeyRefused.Share, s.KeyRefused.Refusals, s.KeyRefused.For = 50, 20, 5*time.Second
	s.NewKeys.Factor, s.NewKeys.Least = 5, 100
	return s
}

// State is what happened to a warning.
type State uint8

// The states.
const (
	Started State = iota // it is new
	Raised               // its level has risen
	Ended                // what it warned of is over
)

// String returns the name that messages use: started, raised or ended.
func (s State) String() string { return enum.Name(s, "state", "started", "raised", "ended") }

// Warning is one warning. Which figures are set depends on its Kind.
type Warning struct {
	Kind  Kind
	State State
	Rule  *rules.Rule
	// Key is the composed key, for rules.SplitKey, and empty if the warning is about a
	// whole rule. If Cut is set, it is the first [MaxKey] bytes of a longer one.
	Key string
	Cut bool
	// Since is when it started, At when its state changed.
	Since, At time.Time
	Level     int64 // of RuleNearLimit, in percent
	// Allowed and Refused are requests of the key in the last Settings.KeyRefused.For;
	// shadow refusals count as refused.
	Allowed, Refused int64
	// Keys are the active keys of the rule in the last 5 to 10 s, about, and Near those of
	// them that have used Level of their limit.
	Keys, Near int64
	// PerSecond are the new keys per second in the last 5 s, about, and Usual the mean.
	PerSecond, Usual int64
}

// identity tells warnings apart.
type identity struct {
	kind Kind
	rule ruleName
	hash uint64 // of the key; 0 for a whole rule
}

// ruleName identifies a rule across reloads.
type ruleName struct{ domain, rule string }

func nameOf(r *rules.Rule) ruleName { return ruleName{r.Domain, r.Name} }

// compare orders warnings by time, rule, kind and key.
func compare(a, b *Warning) int {
	return cmp.Or(
		a.Since.Compare(b.Since), cmp.Compare(a.Rule.Domain, b.Rule.Domain), cmp.Compare(a.Rule.Name, b.Rule.Name),
		cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key),
	)
}
