package simulate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
)

// Comparison is the difference between two sets of rules on the same traffic.
type Comparison struct {
	// NewlyRefused are requests that the old rules allow and the new rules refuse,
	// NewlyAllowed the opposite.
	NewlyRefused int64 `json:"newly_refused"`
	NewlyAllowed int64 `json:"newly_allowed"`
	// SameAllowed and SameRefused are requests with the same decision.
	SameAllowed int64 `json:"same_allowed"`
	SameRefused int64 `json:"same_refused"`
	// By are the rules responsible: the new rule for newly refused requests, the
	// old rule for newly allowed ones.
	By  []Change `json:"by"`
	New *Report  `json:"new"` // the report on the new rules
}

// Change is the difference caused by one rule.
type Change struct {
	Rule         string `json:"rule"`
	NewlyRefused int64  `json:"newly_refused"`
	NewlyAllowed int64  `json:"newly_allowed"`
	// Keys is the number of affected keys, Top those affected most.
	Keys int         `json:"keys"`
	Top  []KeyChange `json:"top"`
}

// KeyChange is the difference for one key.
type KeyChange struct {
	Key          string `json:"key"`
	NewlyRefused int64  `json:"newly_refused"`
	NewlyAllowed int64  `json:"newly_allowed"`
}

// comparison counts differences.
type comparison struct {
	Comparison // its counts
	causes     map[cause]*changes
	order      []*changes
}

// cause is a rule, and whether it no longer refuses or newly refuses.
type cause struct {
	rule    *rules.Rule
	allowed bool
}

// changes are the differences by one cause.
type changes struct {
	Change // its counts
	keys   map[string]*KeyChange
}

// mostChanged limits the keys of a rule that are counted separately.
const mostChanged = 1 << 16

func newComparison() *comparison { return &comparison{causes: map[cause]*changes{}} }

// add compares two verdicts on a request.
func (c *comparison) add(before, after *engine.Verdict) {
	switch {
	case before.Allowed && after.Allowed:
		c.SameAllowed++
	case !before.Allowed && !after.Allowed:
		c.SameRefused++
	case after.Allowed:
		c.changed(before, cause{before.Rule, true})
	default:
		c.changed(after, cause{after.Rule, false})
	}
}

// changed counts a request that v's rule newly refuses or no longer refuses.
func (c *comparison) changed(v *engine.Verdict, by cause) {
	ch := c.causes[by]
	if ch == nil {
		ch = &changes{Change: Change{Top: []KeyChange{}}, keys: map[string]*KeyChange{}}
		if by.rule != nil {
			ch.Rule = by.rule.Name
		}
		c.causes[by] = ch
		c.order = append(c.order, ch)
	}
	k := ch.key(v)
	if by.allowed {
		c.NewlyAllowed++
		ch.NewlyAllowed++
		k.NewlyAllowed++
		return
	}
	c.NewlyRefused++
	ch.NewlyRefused++
	k.NewlyRefused++
}

// key returns the change of the key that v's rule refused. If there are too many
// keys it is not reported.
func (ch *changes) key(v *engine.Verdict) *KeyChange {
	refuser := v.Refuser() // of several keys of the rule, the one that refused
	if refuser == nil {
		return new(KeyChange)
	}
	k := ch.keys[refuser.Key]
	if k == nil {
		k = &KeyChange{Key: keyText(refuser.Rule, refuser.Key)}
		if len(ch.keys) < mostChanged {
			ch.keys[strings.Clone(refuser.Key)] = k
		}
	}
	return k
}

func (c *comparison) report(after *Report, top int) *Comparison {
	out := &c.Comparison
	out.By, out.New = []Change{}, after
	for _, ch := range c.order {
		one := ch.Change
		one.Keys = len(ch.keys)
		for _, k := range ch.keys {
			one.Top = append(one.Top, *k)
		}
		slices.SortFunc(one.Top, func(a, b KeyChange) int {
			return cmp.Or(cmp.Compare(b.NewlyRefused+b.NewlyAllowed, a.NewlyRefused+a.NewlyAllowed), strings.Compare(a.Key, b.Key))
		})
		one.Top = one.Top[:min(top, len(one.Top))]
		out.By = append(out.By, one)
	}
	slices.SortStableFunc(out.By, func(a, b Change) int {
		return cmp.Compare(b.NewlyRefused+b.NewlyAllowed, a.NewlyRefused+a.NewlyAllowed)
	})
	return out
}
