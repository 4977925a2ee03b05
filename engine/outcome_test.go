package engine_test

import (
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
