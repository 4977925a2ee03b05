package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const explained = `
domain: api
limits:
  - {name: user, match: {attributes: {user: {present: true}}}, key: [user], rate: 3/minute, algorithm: fixed_window}
  - {name: all, rate: 8/minute, algorithm: fixed_window, cost: 2}
  - {name: seen, key: [user], rate: 1/minute, algorithm: fixed_window, mode: shadow}
descriptors:
  - {key: team, value: red, quota_mode: true, rate_limit: {name: red, unit: minute, requests_per_unit: 1}}
  - {key: team, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: vip, rate_limit: {unlimited: true, replaces: [{name: user}, {name: seen}]}}
`

func query(r request) engine.ExplainQuery {
	return engine.ExplainQuery{Domain: "api", Parts: []rules.Request{r}, Cost: 1, At: start}
}

func TestExplainChargesNothingAndTellsTheCounts(t *testing.T) {
	e := engine.New(memory.New(), parse(t, explained))
	decide(t, e, ask(user("u"), 0))
	for range 3 {
		x, err := e.Explain(context.Background(), query(user("u")))
		if err != nil || !x.Verdict.Allowed || x.Verdict.Rule.Name != "user" || x.Verdict.WouldRefuse != 1 {
			t.Fatalf("%+v, %v", x.Verdict, err)
		}
		byName := map[string]engine.Explained{}
		for _, r := range x.Parts[0].Rules {
			byName[r.Rule.Name] = r
		}
		if d := byName["user"].Decision; d.Remaining != 2 || !d.Allowed {
			t.Errorf("user: %+v", d)
		}
		if d := byName["all"].Decision; d.Remaining != 6 {
			t.Errorf("all: %+v", d)
		}
		if r := byName["seen"]; r.Enforced || r.Decision.Allowed || r.Decision.RetryAfter == 0 {
			t.Errorf("seen: %+v", r)
		}
		if r := byName["team_red"]; r.Applies || len(r.Mismatches) == 0 {
			t.Errorf("red: %+v", r)
		}
	}
}

// A limit that another replaces does not apply, whichever method is used.
func TestReplacedRulesDoNotApplyToOneRequest(t *testing.T) {
	e := engine.New(memory.New(), parse(t, explained))
	vip := request{"user": "u", "vip": "yes"}
	x, err := e.Explain(context.Background(), query(vip))
	applying := ""
	for _, r := range x.Parts[0].Rules {
		if r.Applies {
			applying += r.Rule.Name + " "
		}
	}
	if err != nil || applying != "all vip " {
		t.Errorf("%s, %v", applying, err)
	}
	v, err := e.Decide(context.Background(), ask(vip, 0))
	if err != nil || len(v.Results()) != 2 || v.Rule.Name != "all" {
		t.Errorf("%+v, %v", v, err)
	}
}

// Rules that apply come first, then those that nearly do.
func TestExplainListsTheNearest(t *testing.T) {
	e := engine.New(memory.New(), parse(t, explained))
	q := query(request{"team": "red"})
	for _, c := range []struct {
		rule          string
		most, leftOff int
		want          string
	}{
		{"", 0, 0, "all seen team_red user team vip "},
		{"", 2, 1, "all seen team_red user team "},
		{"vip", 1, 0, "vip "},
		{"none", 1, 0, ""},
	} {
		q.Rule, q.Most = c.rule, c.most
		x, err := e.Explain(context.Background(), q)
		got := ""
		for _, r := range x.Parts[0].Rules {
			got += r.Rule.Name + " "
		}
		if err != nil || got != c.want || x.Parts[0].LeftOff != c.leftOff {
			t.Errorf("%q, %d: got %q and %d left off, %v", c.rule, c.most, got, x.Parts[0].LeftOff, err)
		}
	}
}

func TestExplainUnknownDomainAndWrongCost(t *testing.T) {
	e := engine.New(memory.New(), parse(t, explained), engine.WithUnknownDomain(engine.UnknownDomainRefuse))
	q := query(user("u"))
	q.Domain = "other"
	if x, err := e.Explain(context.Background(), q); err != nil || x.Verdict.Known || x.Verdict.Allowed || x.Parts != nil {
		t.Errorf("%+v, %v", x, err)
	}
	q = query(user("u"))
	q.Cost = 0
	if x, err := e.Explain(context.Background(), q); err != nil || !x.Verdict.Allowed || x.Verdict.Decision.Reason == headgate.ReasonTooLarge {
		t.Errorf("a dry run: %+v, %v", x.Verdict, err)
	}
	q.Cost = -1
	if x, err := e.Explain(context.Background(), q); !errors.Is(err, headgate.ErrInvalidCost) || x.Verdict.Allowed {
		t.Errorf("%+v, %v", x, err)
	}
}

func TestExplainWithoutAStore(t *testing.T) {
	e := engine.New(broken{}, parse(t, explained))
	x, err := e.Explain(context.Background(), query(user("u")))
	if !errors.Is(err, headgate.ErrUnavailable) || !x.Verdict.Allowed || x.Verdict.Decision.Reason != headgate.ReasonFailOpen {
		t.Errorf("%+v, %v", x.Verdict, err)
	}
}

// Explain agrees with a peek by DecideAll, whatever has been charged.
func TestExplainAgreesWithDecideAll(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	e := engine.New(memory.New(), parse(t, explained))
	refused := 0
	for i := range 3000 {
		at := start + int64(i)*3_000_000
		var parts []rules.Request
		for range 1 + r.IntN(3) {
			one := request{}
			for _, name := range []string{"user", "team", "vip"} {
				if r.IntN(3) == 0 {
					one[name] = []string{"u", "red", "blue"}[r.IntN(3)]
				}
			}
			parts = append(parts, one)
		}
		all := engine.Query{Domain: "api", At: at}
		for _, p := range parts {
			all.Parts = append(all.Parts, engine.Part{Request: p, Cost: 1, Kind: store.KindPeek})
		}
		want, err := e.Decide(context.Background(), all)
		if err != nil {
			t.Fatal(err)
		}
		x, err := e.Explain(context.Background(), engine.ExplainQuery{Domain: "api", Parts: parts, Cost: 1, At: at})
		if err != nil {
			t.Fatal(err)
		}
		got, would := fmt.Sprint(x.Verdict.Allowed), x.Verdict.WouldRefuse
		if got != fmt.Sprint(want.Allowed) || would != want.WouldRefuse {
			t.Fatalf("%d: %v: explained %s with %d, decided %t with %d", i, parts, got, would, want.Allowed, want.WouldRefuse)
		}
		if !want.Allowed {
			refused++
		}
		want.Release()
		for j := range all.Parts {
			all.Parts[j].Kind = store.KindTake
		}
		v, err := e.Decide(context.Background(), all)
		if err != nil {
			t.Fatal(err)
		}
		v.Release()
	}
	if refused < 300 {
		t.Errorf("only %d refusals", refused)
	}
}
