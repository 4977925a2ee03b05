package rules

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/headgate/headgate"
)

// comparison says what becomes of the comparison of two rules that differ in one
// field of [Rule] alone.
type comparison struct {
	change func(*Rule)
	// strict: the changed one still covers the other, loose: it is still
	// covered, repeats: both do the same.
	strict, loose, repeats bool
}

// told is a field that does not matter: a name or a position, derived from others, or
// part of the signature that both rules share.
func told() comparison { return comparison{func(*Rule) {}, true, true, true} }

// apart is a field that neither a rule that repeats nor one that covers may have
// another of, and never how often a request is refused.
func apart(change func(*Rule)) comparison { return comparison{change, false, false, false} }

// harmless is a field that changes what a rule does, but not what it refuses.
func harmless(change func(*Rule)) comparison { return comparison{change, true, true, false} }

// comparisons has an entry for each field of Rule. Who adds a field decides here,
// and in Rule.covers and Rule.manner, what it means for two rules that otherwise
// count the same.
func comparisons() map[string]comparison {
	return map[string]comparison{
		"Domain": told(), "Name": told(), "Scope": told(), "LimitName": told(), "Description": told(),
		"Index": told(), "File": told(), "Line": told(), "Column": told(),
		"Key": told(), "KeyMissing": told(), "Tier": told(), "TierBy": told(), "match": told(), "byPath": told(),
		"steps": told(), "digester": told(), "one": told(),
		"Disabled": told(), // such a rule is not compared
		"Limit":    {func(r *Rule) { r.Limit = headgate.PerMinute(9) }, false, true, false},
		"Values":   apart(func(r *Rule) { r.Values = &Values{Of: Attribute{Kind: ClientIP}} }),
		"Fair":     apart(func(r *Rule) { r.Fair = &Fair{} }),
		"Cost":     apart(func(r *Rule) { r.Cost = 2 }),
		"CostFrom": apart(func(r *Rule) { r.CostFrom = &CostFrom{Default: 1, Min: 1, Max: 5} }),
		// What is charged afterwards may be more than what other rules charge,
		// or less.
		"CostAfter": apart(func(r *Rule) { r.CostAfter = &CostAfter{Header: "X-Tokens"} }),
		// Behind a shadow ban other limits count on, and a rejection goes
		// before it.
		"OnLimit": {func(r *Rule) { r.OnLimit.Action = ShadowBan }, false, true, false},
		// Its refusals may, for example, ban a key before those of the other do.
		"Traits":  {func(r *Rule) { r.Traits = []fmt.Stringer{Attribute{}} }, true, false, false},
		"when":    {func(r *Rule) { r.when = []When{nil} }, false, true, false}, // it does not refuse at other times
		"Headers": harmless(func(r *Rule) { r.Headers = "github" }),
		"Mode":    {func(r *Rule) { r.Mode = Shadow }, false, true, false},
		"Percent": {func(r *Rule) { r.Percent = 50 }, false, true, false},
		// The stricter policy for outages covers the others.
		"OnStoreError": {func(r *Rule) { r.OnStoreError = StoreErrorDeny }, true, false, false},
		"LocalShare":   harmless(func(r *Rule) { r.LocalShare = 0.5 }), // cannot be combined with allow
		// It is another limit that does not apply then.
		"Replaces":       harmless(func(r *Rule) { r.Replaces = []string{"x"} }),
		"QuotaMode":      {func(r *Rule) { r.QuotaMode = true }, false, true, false},
		"ChargeDenied":   apart(func(r *Rule) { r.ChargeDenied = true }),
		"Metadata":       harmless(func(r *Rule) { r.Metadata = map[string]any{"a": "b"} }),
		"DetailedMetric": harmless(func(r *Rule) { r.DetailedMetric = true }),
		"MetricValues":   harmless(func(r *Rule) { r.MetricValues = []int{1} }),
		"Headroom":       apart(func(r *Rule) { r.Headroom = &Headroom{} }),
		"table":          apart(func(r *Rule) { r.table = &Table{} }), // limits that the comparison does not see
		"list":           told(),                                      // such a rule is in no Ruleset
		"given":          apart(func(r *Rule) { r.given = &Given{Zone: &GivenZone{}} }),
		"base":           told(), // for single keys
		"row":            told(),
		"zone":           told(), // for single requests
		"rate":           told(),
		"used":           told(),
		"flat":           harmless(func(r *Rule) { r.flat = true }),
		// It refuses the same, and marks more.
		"Soft":    {func(r *Rule) { r.Soft = 80 }, true, false, false},
		"marking": told(),
	}
}

// The comparison covers each field of a rule: there is no warning about a rule that does
// something another does not.
func TestEveryFieldIsCompared(t *testing.T) {
	decided := comparisons()
	plain := func() *Rule {
		return &Rule{Limit: headgate.PerMinute(5), Cost: 1, Percent: 100, LocalShare: 1, OnLimit: OnLimit{Status: 429}}
	}
	for field := range reflect.TypeFor[Rule]().Fields() {
		c, ok := decided[field.Name]
		if !ok {
			t.Errorf("Rule.%s: decide what it means for the comparison", field.Name)
			continue
		}
		delete(decided, field.Name)
		changed, other := plain(), plain()
		c.change(changed)
		got := comparison{nil, changed.Covers(other), other.Covers(changed), changed.Repeats(other)}
		if got.strict != c.strict || got.loose != c.loose || got.repeats != c.repeats {
			t.Errorf("%s changed: covers %t, is covered %t, repeats %t; want %t, %t, %t", field.Name, got.strict, got.loose, got.repeats, c.strict, c.loose, c.repeats)
		}
		both := plain()
		c.change(both)
		if changed.Covers(both) && (both.CostAfter != nil || both.OnLimit.Action != Reject || both.QuotaMode || both.ChargeDenied) {
			t.Errorf("%s changed in both: one is said to cover the other", field.Name)
		}
		if changed.Repeats(both) == (field.Name == "Percent") { // it is of other keys for each rule
			t.Errorf("%s changed in both: do they repeat each other?", field.Name)
		}
	}
	for name := range decided {
		t.Errorf("there is no Rule.%s", name)
	}
}

// A local limit covers another if its share is not the larger one.
func TestSharesOfCoveringRules(t *testing.T) {
	local := func(share float64) *Rule {
		return &Rule{Limit: headgate.PerMinute(5), Cost: 1, Percent: 100, LocalShare: share, OnStoreError: StoreErrorLocal}
	}
	if !local(0.2).Covers(local(0.5)) || local(0.5).Covers(local(0.2)) || !local(1).Covers(local(1)) {
		t.Error("the shares are not compared")
	}
	allow := local(1)
	allow.OnStoreError = StoreErrorAllow
	if !local(1).Covers(allow) || allow.Covers(local(1)) {
		t.Error("allow is as strict as local")
	}
}
