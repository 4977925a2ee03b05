package engine_test

import (
	"context"
	"testing"
	"time"

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

const lines = `
domain: api
limits:
  - {name: shared, rate: 100/second, fair: {among: user, weights: {by: plan, pro: 3}}}
`

// TestFairClaims: requests that are decided again take from the share that their owner had, by its
// weight. However many wait, who is not in a line has its own share.
func TestFairClaims(t *testing.T) {
	stores(t, func(t *testing.T, db store.Store) {
		e := engine.New(db, parse(t, lines))
		claims := func(user, plan string) []engine.Claim {
			v := decide(t, e, ask(request{"user": user, "plan": plan}, 0))
			defer v.Release()
			return v.Claims()
		}
		waits := map[string][]engine.Claim{"basic": claims("waits", "basic"), "pro": claims("pays", "pro")}
		polite, passed := 0, map[string]int{}
		for i := range 4000 { // twenty seconds
			seconds := float64(i) / 200
			for name, c := range waits {
				v, err := e.Again(t.Context(), "api", c, at(seconds))
				if err != nil {
					t.Fatal(err)
				}
				if v.Allowed {
					passed[name]++
				}
				v.Release()
			}
			if i%20 == 0 && decide(t, e, ask(request{"user": "polite"}, seconds)).Allowed {
				polite++
			}
		}
		if all := polite + passed["basic"] + passed["pro"]; polite < 199 || all < 2000 || all > 2100 || passed["pro"] < 5*passed["basic"]/2 {
			t.Errorf("of 200 of the polite one %d passed; of a line %d, and %d of one with three times the weight", polite, passed["basic"], passed["pro"])
		}
	})
}

// TestClaimsWhoseShareChanged: a claim without an owner, of a rule that is shared only since, is
// first come, first served; so is one whose rule is not shared any more.
func TestClaimsWhoseShareChanged(t *testing.T) {
	t.Parallel()
	shared, plain := parse(t, lines), parse(t, "domain: api\nlimits: [{name: shared, rate: 100/second}]")
	for _, row := range []struct {
		claim engine.Claim
		under *rules.Ruleset
		most  int
	}{
		{engine.Claim{Rule: "shared", Cost: 1, Owner: key("ann"), Weight: 1}, shared, 75},
		{engine.Claim{Rule: "shared", Cost: 1}, shared, 100},
		{engine.Claim{Rule: "shared", Cost: 1, Owner: key("ann"), Weight: store.MaxWeight + 1}, shared, 100},
		{engine.Claim{Rule: "shared", Cost: 1, Owner: key("ann"), Weight: 1}, plain, 100},
	} {
		e, passed := engine.New(memory.New(), row.under), 0
		for range 200 {
			v, err := e.Again(t.Context(), "api", []engine.Claim{row.claim}, start)
			if err != nil {
				t.Fatal(err)
			}
			if v.Allowed {
				passed++
			}
			v.Release()
		}
		if passed > row.most || passed < row.most*2/3 {
			t.Errorf("%+v: %d of 200 passed at once, want about %d", row.claim, passed, row.most)
		}
	}
}

// TestSharesAreSettled: what a report, a cancelled reservation or a smaller real cost gives back,
// its owner gets back too, and a larger one is the owner's to pay.
func TestSharesAreSettled(t *testing.T) {
	const limit = `
domain: api
limits:
  - {name: shared, rate: 100/minute, fair: {among: user, horizon: 60s}, charge_on: {status: [401]}}
`
	ask := func(user string, cost int64) engine.Query {
		q := ask(request{"user": user}, 0)
		q.Cost = cost
		return q
	}
	reserve := func(t *testing.T, e *engine.Engine, user string, cost int64) (token string) {
		v, token, err := e.Reserve(t.Context(), ask(user, cost), time.Minute)
		if err != nil || !v.Allowed {
			t.Fatalf("%s: %+v, %v", user, v.Decision, err)
		}
		v.Release()
		return token
	}
	for name, settle := range map[string]func(*testing.T, *engine.Engine) error{
		"reported": func(t *testing.T, e *engine.Engine) error {
			v := decide(t, e, ask("alone", 1))
			defer v.Release()
			token, err := e.ReportToken(t.Context(), &v, start)
			if err != nil || !v.Allowed {
				t.Fatalf("%+v, %v", v.Decision, err)
			}
			_, err = e.Report(t.Context(), token, right, start)
			return err
		},
		"cancelled": func(t *testing.T, e *engine.Engine) error {
			_, err := e.Cancel(t.Context(), reserve(t, e, "alone", 1), start)
			return err
		},
		"cheaper": func(t *testing.T, e *engine.Engine) error {
			_, err := e.Commit(t.Context(), reserve(t, e, "alone", 20), 0, start)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			stores(t, func(t *testing.T, db store.Store) {
				e := engine.New(db, parse(t, limit))
				for range 300 {
					if err := settle(t, e); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
	stores(t, func(t *testing.T, db store.Store) {
		e := engine.New(db, parse(t, limit))
		if _, err := e.Commit(t.Context(), reserve(t, e, "dear", 1), 60, start); err != nil {
			t.Fatal(err)
		}
		left := map[string]int64{}
		for _, user := range []string{"dear", "other"} {
			q := ask(user, 1)
			q.Kind = store.KindPeek
			v := decide(t, e, q)
			left[user] = v.Decision.Remaining
			v.Release()
		}
		if left["other"] < 8 || left["dear"] > left["other"]*3/4 {
			t.Errorf("one has cost 60 of 100: left are %v", left)
		}
	})
}
