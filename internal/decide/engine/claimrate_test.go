package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const claimed = `
domain: api
limits:
  - {name: per-customer, key: "jwt:sub", rate: {from: "jwt:rate", max: 1000/minute, default: 100/minute}ALSO}
`

func withClaim(also string) string { return strings.ReplaceAll(claimed, "ALSO", also) }

// A claim gives the rate, up to the max. Without one, or with one that is no rate, the
// default applies.
func TestRatesOfClaims(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ also, rate, want, from string }{
		{"", "500/minute", "500/minute token_bucket", "jwt:rate"},
		{"", " 1_000 / Minute ", "1000/minute token_bucket", "jwt:rate"},
		{"", "0/minute", "0/minute token_bucket", "jwt:rate"},
		{"", "1001/minute", "1000/minute token_bucket", `the max of the rule: jwt:rate is "1001/minute"`},
		{"", "20/second", "1000/minute token_bucket", `the max of the rule: jwt:rate is "20/second"`},
		{"", "10000/hour", "10000/hour token_bucket burst 1000", "jwt:rate"}, // less, but not as much at once
		{"", "1099511627776/us", "1000/minute token_bucket", `the max of the rule: jwt:rate is "1099511627776/us"`},
		{"", "", "100/minute token_bucket", "the default: jwt:rate is not a rate"},
		{"", "500", "100/minute token_bucket", `the default: "500" in jwt:rate is not a rate for this rule`},
		{"", "-5/minute", "100/minute token_bucket", `the default: "-5/minute" in jwt:rate is not a rate for this rule`},
		{"", "unlimited", "100/minute token_bucket", `the default: "unlimited" in jwt:rate is not a rate for this rule`},
		{"", "deny", "100/minute token_bucket", `the default: "deny" in jwt:rate is not a rate for this rule`},
		{"", strings.Repeat("9", 65), "100/minute token_bucket", "the default: jwt:rate is not a rate"},
		{", burst: 70", "500/minute", "500/minute token_bucket burst 70", "jwt:rate"},
		{", algorithm: sliding_window", "500/minute", "500/minute sliding_window", "jwt:rate"},
		{", algorithm: sliding_window", "10000/hour", "1000/minute sliding_window", `the max of the rule: jwt:rate is "10000/hour"`},
		{", algorithm: fixed_window, timezone: Europe/Berlin", "900/day", "900/day fixed_window in Europe/Berlin", "jwt:rate"},
		// More than the rule's other options can hold is more than the max all the same.
		{", burst: 300, refill: {every: 10s}", "5000/minute", "1000/minute token_bucket burst 300 refilled every 10s", `the max of the rule: jwt:rate is "5000/minute"`},
		{", algorithm: sliding_log", "2000000/minute", "1000/minute sliding_log", `the max of the rule: jwt:rate is "2000000/minute"`},
		{", algorithm: sliding_log", "1048577/year", "1000/minute sliding_log", `the max of the rule: jwt:rate is "1048577/year"`},
		{", refill: {every: 1m}", "1/second", "100/minute token_bucket refilled every 1m", `the default: "1/second" in jwt:rate is not a rate for this rule`},
		{", on_limit: {action: delay, max_wait: 1s}", "60/minute", "60/minute leaky_bucket burst 61 delay after 60 wait at most 1s", "jwt:rate"},
	} {
		e := engine.New(memory.New(), parse(t, withClaim(row.also)))
		x, err := e.Explain(context.Background(), engine.ExplainQuery{Domain: "api", Parts: []rules.Request{request{"jwt:sub": "ann", "jwt:rate": row.rate}}, Cost: 1, At: start})
		if err != nil {
			t.Fatal(err)
		}
		if got := x.Parts[0].Rules[0]; got.Rule.Limit.String() != row.want || got.LimitFrom != row.from {
			t.Errorf("%q%s: %s from %s, want %s from %s", row.rate, row.also, got.Rule.Limit, got.LimitFrom, row.want, row.from)
		}
	}
	e := engine.New(memory.New(), parse(t, strings.ReplaceAll(strings.ReplaceAll(withClaim(", period: minute"), "1000/minute", "1000"), "100/minute", "100")))
	for rate, want := range map[string]int64{"500": 500, "5000": 1000, "500/minute": 100, "0x10": 100} {
		v := decide(t, e, ask(request{"jwt:sub": "ann", "jwt:rate": rate}, 0))
		if v.Decision.Limit != want {
			t.Errorf("%s with a period: %d, want %d", rate, v.Decision.Limit, want)
		}
		v.Release()
	}
}

// A key keeps its count when its claim changes. Without the claim it has the default, not a
// second budget.
func TestCountsOfClaims(t *testing.T) {
	t.Parallel()
	e := engine.New(memory.New(), parse(t, withClaim(", algorithm: fixed_window")))
	for i, row := range []struct {
		rate             string
		limit, remaining int64
	}{{"500/minute", 500, 499}, {"700/minute", 700, 698}, {"", 100, 97}, {"9999/minute", 1000, 996}} {
		r := request{"jwt:sub": "ann"}
		if row.rate != "" {
			r["jwt:rate"] = row.rate
		}
		v := decide(t, e, ask(r, 0))
		if v.Decision.Limit != row.limit || v.Decision.Remaining != row.remaining {
			t.Errorf("request %d: %d of %d left, want %d of %d", i, v.Decision.Remaining, v.Decision.Limit, row.remaining, row.limit)
		}
		v.Release()
	}
}

// A reservation is settled under the rate of its request, and an override replaces it.
func TestSettlingUnderAClaim(t *testing.T) {
	t.Parallel()
	rs := parse(t, withClaim(""))
	e := engine.New(memory.New(), rs)
	q := ask(request{"jwt:sub": "ann", "jwt:rate": "500/minute"}, 0)
	q.Cost = 400
	v, token, err := e.Reserve(context.Background(), q, time.Minute)
	if err != nil || !v.Allowed {
		t.Fatal(v.Decision, err)
	}
	v.Release()
	if out, err := e.Commit(context.Background(), token, 490, start); err != nil || out.Ending != engine.Done || out.InDebt {
		t.Errorf("%+v %v, want no debt: 490 of 500", out, err)
	}
	base := rs.Rule("api", "per-customer")
	if _, err := base.WithLimit("", 50); err == nil || !strings.Contains(err.Error(), "takes its rate from jwt:rate: the override needs a rate") {
		t.Error(err)
	}
	other, err := base.WithLimit("7/minute", 0)
	if err != nil {
		t.Fatal(err)
	}
	key, err := base.ComposeKey([]rules.KeyPart{{Value: "ann"}})
	if err != nil {
		t.Fatal(err)
	}
	e.SetExceptions(engine.NewExceptions([]engine.Exception{{
		Scope: base.Scope, Key: key, LimitUntil: start + 1e12, Instead: []engine.Instead{{Of: base, Rule: other}},
	}}, start))
	q.Kind = store.KindPeek
	v = decide(t, e, q)
	if v.Decision.Limit != 7 {
		t.Errorf("%+v, want the override", v.Decision)
	}
	v.Release()
}

// FuzzClaimedRate: whatever a claim says, the limit is valid and never above max.
func FuzzClaimedRate(f *testing.F) {
	for _, text := range []string{"500/minute", "1/us", "1099511627776/second", "5/90d", "unlimited", "9/0s", "@", "5/minute@UTC", "\x00", "١/s", "1_0/s"} {
		f.Add(text)
	}
	var engines []*engine.Engine
	for _, also := range []string{"", ", burst: 1500", ", algorithm: sliding_log", ", algorithm: fixed_window, timezone: \"jwt:zoneinfo\"", ", on_limit: {action: delay, max_wait: 9s}", ", burst: 300, refill: {every: 10s}"} {
		engines = append(engines, engine.New(memory.New(), parse(f, withClaim(also))))
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, e := range engines {
			most := e.Rules().Rule("api", "per-customer").GivenBy().Rate.Max
			v := decide(t, e, engine.Query{Domain: "api", Part: engine.Part{Request: request{"jwt:sub": "ann", "jwt:rate": text}, Cost: 1, Kind: store.KindPeek}, At: start})
			l := v.Rule.Limit
			if !l.Rule().Valid() || l.Rule().Unlimited || rules.IsMore(l, most) {
				t.Errorf("%q: %s, with at most %s", text, l, most)
			}
			if again := v.Rule.Base().WithGiven(v.Rule.GivenText()); !again.Limit.Equal(l) {
				t.Errorf("%q: %s after the way through a token, not %s", text, again.Limit, l)
			}
			v.Release()
		}
	})
}
