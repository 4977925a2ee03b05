package metrics_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
)

// flat has two rules with one scope: compat: envoy counts by unit.
const flat = `
domain: api
compat: envoy
descriptors:
  - {key: user, value: ann, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: user, value: bob, rate_limit: {unit: minute, requests_per_unit: 3}}
`

// tiered is one limit with three rules, which share their scope.
const tiered = `
domain: api
limits:
  - name: plan
    key: [path]
    rate: 20/minute
    tiers:
      by: user
      free: {rate: 30/minute}
      paid: {rate: 50/minute}
`

// Envoy's rules share their scope, but each is counted under its own name, also after a
// reload and when a key has an override.
func TestRulesOfOneScopeAreCountedApart(t *testing.T) {
	f := newFixture(t, flat)
	if list := f.Rules().Rules(); len(list) != 2 || list[0].Scope != list[1].Scope {
		t.Fatalf("%d rules, which are to share a scope", len(list))
	}
	ask := func(user string, times int) {
		t.Helper()
		for range times {
			f.ask(t, "/", user)
		}
	}
	want := func(when string, a, b float64) {
		t.Helper()
		got := f.gathered(t)
		if got["decisions_total api allowed user_ann"] != a || got["decisions_total api allowed user_bob"] != b {
			t.Errorf("%s: %v, want %v and %v", when, got, a, b)
		}
	}
	ask("ann", 1)
	ask("bob", 2)
	want("at first", 1, 2)
	f.reload(t, flat)
	ask("ann", 1)
	want("after a reload", 2, 2)

	rule := f.Rules().Rule("api", "user_ann")
	other, err := rule.WithLimit("100/minute", 0)
	if err != nil {
		t.Fatal(err)
	}
	var m rules.Matches
	f.Rules().Match("api", &request{user: "ann"}, &m)
	key := strings.Clone(m.Checks[0].Key)
	f.SetExceptions(engine.NewExceptions([]engine.Exception{{
		Scope: rule.Scope, Key: key, LimitUntil: f.now.Add(time.Hour).UnixMicro(), Instead: []engine.Instead{{Of: rule, Rule: other}},
	}}, f.now.UnixMicro()))
	ask("ann", 7)
	want("with another limit", 9, 2)
	if c := f.observer.Counts(rule); c[engine.Allowed] != 9 || c[engine.Refused] != 0 {
		t.Errorf("%+v", c)
	}
}

// The tiers of a limit are counted separately, also after a reload.
func TestTiersAreCountedApart(t *testing.T) {
	f := newFixture(t, tiered)
	for range 3 {
		for _, tier := range []string{"", "free", "paid", "paid"} {
			f.ask(t, "/", tier)
		}
		f.reload(t, tiered)
	}
	got := f.gathered(t)
	for name, want := range map[string]float64{"plan": 3, "plan/free": 3, "plan/paid": 6} {
		if got := got["decisions_total api allowed "+name]; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if tick := f.observer.Tick(f.now); len(tick.Rules) != 3 || tick.Rules[0].Rule != "plan/paid" || tick.Rules[0].Allowed != 6 {
		t.Errorf("%+v", tick.Rules)
	}
}

// A limit sent with a request is counted as no rule, whatever its name.
func TestAnOverrideIsNotTheRuleOfItsName(t *testing.T) {
	f := newFixture(t, "domain: api\nlimits: [{name: override, rate: 3/minute}]\n")
	if c := f.observer.Counts(&rules.Rule{Domain: "api", Name: "override", Scope: "%override:60:api", Index: -1}); c != (metrics.Counts{}) {
		t.Errorf("%+v", c)
	}
	f.ask(t, "/", "ann")
	if c := f.observer.Counts(&rules.Rule{Domain: "api", Name: "override", Scope: "%override:60:api", Index: -1}); c != (metrics.Counts{}) {
		t.Errorf("%+v", c)
	}
}
