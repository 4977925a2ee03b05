package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/engine"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/store/memory"
)

// What one rule made of a request, in a word.
func TestOutcome(t *testing.T) {
	rows := []struct {
		action   rules.Action
		enforced bool
		decision headgate.Decision
		want     engine.Outcome
	}{
		{rules.Reject, true, headgate.Decision{Allowed: true}, engine.Allowed},
		{rules.Reject, true, headgate.Decision{Allowed: true, Reason: headgate.NoLimit}, engine.Allowed},
		{rules.Reject, true, headgate.Decision{Reason: headgate.Limited}, engine.Refused},
		{rules.Delay, true, headgate.Decision{Allowed: true, Delay: time.Second}, engine.Delayed},
		{rules.Delay, true, headgate.Decision{Reason: headgate.Limited}, engine.Refused},
		{rules.ShadowBan, true, headgate.Decision{Reason: headgate.Limited}, engine.ShadowBanned},
		{rules.Queue, true, headgate.Decision{Reason: headgate.Limited}, engine.Queued},
		{rules.ShadowBan, false, headgate.Decision{Allowed: true, Reason: headgate.Shadow}, engine.ShadowRefused},
		{rules.Reject, false, headgate.Decision{Allowed: true}, engine.Allowed},
	}
	for _, row := range rows {
		r := engine.Result{Rule: &rules.Rule{OnLimit: rules.OnLimit{Action: row.action}}, Enforced: row.enforced, Decision: row.decision}
		if got := r.Outcome(); got != row.want {
			t.Errorf("%s, enforced %v, %+v: %s, want %s", row.action, row.enforced, row.decision, got, row.want)
		}
	}
	for o := range engine.Outcomes {
		if name := o.String(); name == "" || name[0] == 'o' {
			t.Errorf("outcome %d has no name: %s", o, name)
		}
	}
}

// A result names the key that its rule counts by.
func TestResultsNameTheirKeys(t *testing.T) {
	e := engine.New(memory.New(), parse(t, twoLimits))
	r := request{"path": "/a", "user": "ann", "team": "red"}
	v := decide(t, e, ask(r, 0))
	all, err := e.DecideAll(t.Context(), engine.MultiQuery{Domain: "api", At: start, Parts: []engine.Part{{Request: r, Cost: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, results := range [][]engine.Result{v.Results(), all.Parts()[0].Results()} {
		for i, want := range []string{"ann", "red"} {
			if parts, ok := rules.SplitKey(results[i].Key); !ok || len(parts) != 1 || parts[0].Value != want {
				t.Errorf("key of %s: %v, want %s", results[i].Rule.Name, parts, want)
			}
		}
	}
}

// Whose action is taken when several rules refuse: what is told comes first,
// and nothing that is banned is kept to be sent later.
func TestWhichActionIsTaken(t *testing.T) {
	const two = `
domain: d
limits:
  - {name: first, key: k, rate: %s/minute, on_limit: %s, on_store_error: deny}
  - {name: second, key: k, rate: %s/hour, on_limit: %s, on_store_error: deny}
`
	rows := []struct {
		first, second string
		rate          string // of both
		want          engine.Outcome
		rule, action  string
	}{
		{"reject", "shadow_ban", "1", engine.Refused, "first", "reject"},
		{"shadow_ban", "reject", "1", engine.Refused, "second", "reject"},
		{"shadow_ban", "shadow_ban", "1", engine.ShadowBanned, "second", "shadow_ban"},
		{"reject", "reject", "1", engine.Refused, "second", "reject"},
		{"shadow_ban", "{action: delay, max_wait: 1s}", "1", engine.Refused, "second", "reject"},
	}
	for _, row := range rows {
		rs, problems := rules.Parse(rules.Source{Name: "t.yaml", Data: fmt.Appendf(nil, two, row.rate, row.first, row.rate, row.second)})
		if rs == nil {
			t.Fatal(problems)
		}
		e := engine.New(memory.New(), rs)
		q := engine.Query{Domain: "d", Request: &rules.Descriptor{Entries: []rules.Entry{{Key: "k", Value: "v"}}}, Cost: 1, At: 1_700_000_000_000_000}
		var v engine.Verdict
		for range 2 {
			var err error
			if v, err = e.Decide(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		if v.Allowed || v.Outcome() != row.want || v.Rule.Name != row.rule || v.Outcome().Action() != row.action {
			t.Errorf("%s and %s: %s by %s, action %s; want %s by %s", row.first, row.second, v.Outcome(), v.Rule.Name, v.Outcome().Action(), row.want, row.rule)
		}
	}
}

// A store that cannot answer bans nobody.
func TestNoBanWithoutKnowing(t *testing.T) {
	rs, problems := rules.Parse(rules.Source{Name: "t.yaml", Data: []byte("domain: d\nlimits:\n  - {name: r, rate: 1/s, on_limit: shadow_ban, on_store_error: deny}\n")})
	if rs == nil {
		t.Fatal(problems)
	}
	s := memory.New()
	_ = s.Close()
	v, err := engine.New(s, rs).Decide(t.Context(), engine.Query{Domain: "d", Request: &rules.Descriptor{}, Cost: 1})
	if err == nil || v.Outcome() != engine.Refused {
		t.Errorf("%s, %v", v.Outcome(), err)
	}
}
