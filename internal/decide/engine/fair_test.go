package engine_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const withShares = `
domain: api
limits:
  - {name: shared, rate: 1000/second, fair: {among: user, weights: {by: plan, pro: 5, default: 1}}}
  - {name: own, key: user, match: {attributes: {plan: free}}, rate: 10/second}
`

// TestFairShares: who hammers is refused for its share and has taken nothing of other limits;
// others pass, and a weight of five has nearly five times as much.
func TestFairShares(t *testing.T) {
	t.Parallel()
	e := engine.New(memory.New(), parse(t, withShares))
	polite, passed := 0, map[string]int{}
	for i := range 20_000 { // ten seconds
		at := float64(i) / 2000
		for plan, user := range map[string]string{"basic": "hammers", "pro": "pays"} {
			v := decide(t, e, ask(request{"user": user, "plan": plan}, at))
			if v.Allowed {
				passed[user]++
			} else if v.Decision.Reason != store.ReasonShare && v.Decision.Reason != store.ReasonLimited || v.Decision.RetryAfter <= 0 {
				t.Fatalf("%s: %+v", user, v.Decision)
			}
		}
		if i%20 == 0 && decide(t, e, ask(request{"user": "polite", "plan": "basic"}, at)).Allowed {
			polite++
		}
	}
	if polite < 995 || passed["hammers"] > 2500 || passed["pays"] < 7000 {
		t.Errorf("of 1000 of the polite one %d passed; %v", polite, passed)
	}
	x, err := e.Explain(context.Background(), engine.ExplainQuery{Domain: "api", Cost: 1, At: start + 10_000_000, Parts: []rules.Request{request{"plan": "pro", "user": "pays"}}})
	if err != nil {
		t.Fatal(err)
	}
	if r := x.Parts[0].Rules[0]; r.Rule.ShareText(r.Share) != "by user, weight 5, horizon 10s" {
		t.Errorf("%q", r.Rule.ShareText(r.Share))
	}
}

// TestOverridesOfSharedLimits: who is alone has the whole rate that an operator has set, not a
// part of it at the prices of the rule's own; a limit too small to be shared is for who comes
// first.
func TestOverridesOfSharedLimits(t *testing.T) {
	t.Parallel()
	rs := parse(t, "domain: api\nlimits: [{name: shared, key: team, rate: 100/second, fair: {among: user}}]")
	for rate, least := range map[string]int{"1000/second": 9_900, "100/second": 990, "10/second": 90} {
		e := engine.New(memory.New(), rs)
		e.SetExceptions(engine.NewExceptions([]engine.Exception{with(t, rs, "shared", "a", rate, 1000)}, start))
		passed := 0
		for i := range 20_000 { // ten seconds
			if decide(t, e, ask(request{"team": "a", "user": "alone"}, float64(i)/2000)).Allowed {
				passed++
			}
		}
		if passed < least || passed > least*10/9+1100 {
			t.Errorf("%s: %d passed in ten seconds, want %d", rate, passed, least)
		}
	}
}
