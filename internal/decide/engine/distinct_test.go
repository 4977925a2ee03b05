package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const distinctRules = `
domain: api
limits:
  - {name: accounts, match: {path: /signup}, key: user, count: distinct, of: "header:X-Account", rate: 3/day, charge_on: {status: 201}}
  - {name: plain, match: {path: /other}, key: user, count: distinct, of: "header:X-Account", rate: 2/day}
  - {name: tight, match: {path: /other}, key: "header:X-Tight", key_missing: skip, rate: 1/day, algorithm: fixed_window}
  - {name: watched, match: {path: /other}, key: user, count: distinct, of: "header:X-Account", rate: 1/day, mode: shadow}
`

func showing(path, account string, more ...string) engine.Query {
	r := request{"path": path, "user": "ann"}
	if account != "" {
		r["header:X-Account"] = account
	}
	for i := 0; i < len(more); i += 2 {
		r[more[i]] = more[i+1]
	}
	return ask(r, 0)
}

// shown decides about requests one after another and returns what the rule says of each:
// + for a value that was added, . for one that is known, ! for a refusal.
func shown(t *testing.T, e *engine.Engine, rule string, queries ...engine.Query) string {
	t.Helper()
	var b strings.Builder
	for _, q := range queries {
		v := decide(t, e, q)
		for _, r := range v.Results() {
			switch {
			case r.Rule.Name != rule:
			case !r.Decision.Allowed || r.Decision.Reason == store.ReasonShadow:
				b.WriteByte('!')
			case r.Decision.Granted > 0:
				b.WriteByte('+')
			default:
				b.WriteByte('.')
			}
		}
		v.Release()
	}
	return b.String()
}

// A value costs once; requests without it have one in common; what another rule refuses
// is not kept; a rule in shadow mode counts on its own.
func TestRulesOfDistinctValues(t *testing.T) {
	e := engine.New(memory.New(), parse(t, distinctRules))
	tight := func(account string) engine.Query { return showing("/other", account, "header:X-Tight", "1") }
	for i, row := range []struct {
		query engine.Query
		want  string
	}{
		{tight("a"), "+"},
		{tight("b"), "."}, // refused by the other rule: peeked at only
		{showing("/other", "c"), "+"},
		{showing("/other", "b"), "!"},
		{showing("/other", ""), "!"},
		{showing("/other", "a"), "."},
	} {
		if got := shown(t, e, "plain", row.query); got != row.want {
			t.Errorf("request %d: %s, want %s", i, got, row.want)
		}
	}
	if got := shown(t, e, "watched", showing("/other", "a"), showing("/other", "c")); got != ".!" {
		t.Errorf("in shadow mode: %s", got)
	}
	missing := engine.New(memory.New(), parse(t, distinctRules))
	if got := shown(t, missing, "plain", showing("/other", ""), showing("/other", ""), showing("/other", "a"), showing("/other", "b"), showing("/other", "")); got != "+.+!." {
		t.Errorf("without the header: %s", got)
	}
}

// With charge_on only the values of answers that count are kept; only the request that
// added a value takes it back.
func TestDistinctValuesOfAnswers(t *testing.T) {
	e := engine.New(memory.New(), parse(t, distinctRules))
	created, invalid := rules.Answer{Status: 201}, rules.Answer{Status: 400}
	for i, row := range []struct {
		account string
		answer  rules.Answer
		allowed bool
		left    int64
	}{
		{"a", invalid, true, 3},
		{"a", created, true, 2},
		{"a", invalid, true, 2}, // it did not add the value
		{"b", invalid, true, 2},
		{"c", created, true, 1},
		{"d", created, true, 0},
		{"e", created, false, 0},
		{"d", created, true, 0},
	} {
		v := decide(t, e, showing("/signup", row.account))
		if v.Allowed != row.allowed {
			t.Errorf("request %d: allowed %t", i, v.Allowed)
		}
		if v.Allowed {
			if err := e.SettleAnswer(t.Context(), &v, at(1), row.answer); err != nil {
				t.Fatal(err)
			}
		}
		v.Release()
		if n := left(t, e, "/signup", "accounts", 1); n != row.left {
			t.Errorf("after request %d: %d left, want %d", i, n, row.left)
		}
	}
}

// A reservation takes a value; Commit keeps it, whatever the cost, and Cancel gives it
// back, also on another node.
func TestReservationsOfDistinctValues(t *testing.T) {
	store := memory.New()
	node := func() *engine.Engine {
		return engine.New(store, parse(t, distinctRules), engine.WithSecret(shared))
	}
	one, two := node(), node()
	for _, row := range []struct {
		account string
		cost    int64
		left    int64
	}{{"a", 0, 2}, {"a", 5, 1}, {"b", 1, 0}, {"b", 0, 0}} {
		v, token, err := one.Reserve(t.Context(), showing("/other", row.account), time.Minute)
		if err != nil || !v.Allowed {
			t.Fatalf("%s: %v", row.account, err)
		}
		v.Release()
		if _, err := two.Commit(t.Context(), token, row.cost, at(2)); err != nil {
			t.Fatal(err)
		}
		if n := left(t, two, "/other", "plain", 2); n != row.left {
			t.Errorf("%s at a cost of %d: %d left, want %d", row.account, row.cost, n, row.left)
		}
	}
}

// Undo leaves the values that a verdict has added: others may have passed with them since.
func TestUndoOfDistinctValues(t *testing.T) {
	e := engine.New(memory.New(), parse(t, distinctRules))
	shown(t, e, "plain", showing("/other", "a"))
	for i, account := range []string{"a", "b"} {
		v := decide(t, e, showing("/other", account))
		if err := e.Refund(t.Context(), &v, at(1)); err != nil {
			t.Fatal(err)
		}
		v.Release()
		if n := left(t, e, "/other", "plain", 1); n != int64(1-i) {
			t.Errorf("undo %d: %d left, want %d", i, n, 1-i)
		}
	}
	if got := shown(t, e, "plain", showing("/other", "b"), showing("/other", "c")); got != ".!" {
		t.Errorf("after that: %s", got)
	}
}

// A client that has to wait for its turn can send each value twice and leave with the
// request that has paid for it. No more values pass for that.
func TestLeaversPayForTheirValues(t *testing.T) {
	e := engine.New(memory.New(), parse(t, `
domain: api
limits:
  - {name: turn, match: {path: /x}, key: user, rate: 4/second, algorithm: leaky_bucket, burst: 100}
  - {name: accounts, match: {path: /x}, key: user, count: distinct, of: "header:X-Account", rate: 3/day}
`))
	admitted := ""
	for _, account := range []string{"a", "b", "c", "d", "e"} {
		first, second := decide(t, e, showing("/x", account)), decide(t, e, showing("/x", account))
		if first.Allowed {
			if err := e.Refund(t.Context(), &first, at(0)); err != nil {
				t.Fatal(err)
			}
		}
		if second.Allowed {
			admitted += account
		}
		first.Release()
		second.Release()
	}
	if admitted != "abc" {
		t.Errorf("admitted: %s, want abc", admitted)
	}
}

// A rule that a reload makes count another attribute begins with no values, and goes on
// where it was if the change is taken back.
func TestReloadOfAnotherAttribute(t *testing.T) {
	e := engine.New(memory.New(), parse(t, distinctRules))
	if got := shown(t, e, "plain", showing("/other", "a"), showing("/other", "b"), showing("/other", "c")); got != "++!" {
		t.Fatalf("accounts: %s", got)
	}
	e.SetRules(parse(t, strings.ReplaceAll(distinctRules, "X-Account", "X-Device")))
	device := func(name string) engine.Query { return showing("/other", "", "header:X-Device", name) }
	if got := shown(t, e, "plain", device("a"), device("b"), device("c"), device("a")); got != "++!." {
		t.Errorf("devices after accounts: %s", got)
	}
	e.SetRules(parse(t, distinctRules))
	if got := shown(t, e, "plain", showing("/other", "c"), showing("/other", "a")); got != "!." {
		t.Errorf("accounts again: %s", got)
	}
}

// A request that waits shows its value when it is asked about again, and when it is
// explained: a value that is known passes, another does not.
func TestWaitingRequestsShowTheirValues(t *testing.T) {
	e := engine.New(memory.New(), parse(t, distinctRules))
	claims := func(account string) []engine.Claim {
		v := decide(t, e, showing("/other", account))
		defer v.Release()
		return v.Claims()
	}
	first, second, third := claims("a"), claims("b"), claims("c")
	for _, row := range []struct {
		account string
		claims  []engine.Claim
		allowed bool
	}{{"a", first, true}, {"b", second, true}, {"c", third, false}} {
		v, err := e.Again(t.Context(), "api", row.claims, at(1))
		if err != nil || v.Allowed != row.allowed || len(v.Results()) != 1 {
			t.Errorf("%s again: %v, %+v, %v", row.account, v.Allowed, v.Decision, err)
		}
		v.Release()
		q := showing("/other", row.account)
		x, err := e.Explain(t.Context(), engine.ExplainQuery{Domain: "api", Parts: []rules.Request{q.Request}, Cost: 1, At: at(1)})
		if err != nil || x.Verdict.Allowed != row.allowed {
			t.Errorf("%s explained: %+v, %v", row.account, x.Verdict.Decision, err)
		}
	}

	// A rule that counts values only since a reload does not hold a request that showed none.
	first[0].Member = 0
	if v, err := e.Again(t.Context(), "api", first, at(1)); err != nil || !v.Allowed || len(v.Results()) != 0 {
		t.Errorf("without a value: %+v, %v", v.Decision, err)
	}
}
