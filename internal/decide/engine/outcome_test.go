package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// The outcome of one rule as a word.
func TestOutcome(t *testing.T) {
	rows := []struct {
		action   rules.Action
		enforced bool
		decision store.Decision
		want     engine.Outcome
	}{
		{rules.Reject, true, store.Decision{Allowed: true}, engine.Allowed},
		{rules.Reject, true, store.Decision{Allowed: true, Reason: headgate.ReasonNoLimit}, engine.Allowed},
		{rules.Reject, true, store.Decision{Reason: headgate.ReasonLimited}, engine.Refused},
		{rules.Delay, true, store.Decision{Allowed: true, Delay: time.Second}, engine.Delayed},
		{rules.Delay, true, store.Decision{Reason: headgate.ReasonLimited}, engine.Refused},
		{rules.ShadowBan, true, store.Decision{Reason: headgate.ReasonLimited}, engine.ShadowBanned},
		{rules.Queue, true, store.Decision{Reason: headgate.ReasonLimited}, engine.Queued},
		{rules.ShadowBan, false, store.Decision{Allowed: true, Reason: store.ReasonShadow}, engine.ShadowRefused},
		{rules.Reject, false, store.Decision{Allowed: true}, engine.Allowed},
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

// A result contains the key that its rule counts by.
func TestResultsNameTheirKeys(t *testing.T) {
	e := engine.New(memory.New(), parse(t, twoLimits))
	r := request{"path": "/a", "user": "ann", "team": "red"}
	v := decide(t, e, ask(r, 0))
	all, err := e.Decide(t.Context(), engine.Query{Domain: "api", At: start, Parts: []engine.Part{{Request: r, Cost: 1}}})
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

// Which action is taken when several rules refuse: visible refusals come first, and
// banned requests are never queued.
func TestWhichActionIsTaken(t *testing.T) {
	const two = `
domain: d
limits:
  - {name: first, key: k, rate: %s/minute, on_limit: %s, on_store_error: deny}
  - {name: second, key: k, rate: %s/hour, on_limit: %s, on_store_error: deny}
`
	rows := []struct {
		first, second string
		rate          string // of both rules
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
		rs, problems := rulefile.Parse(rulefile.Source{Name: "t.yaml", Data: fmt.Appendf(nil, two, row.rate, row.first, row.rate, row.second)})
		if rs == nil {
			t.Fatal(problems)
		}
		e := engine.New(memory.New(), rs)
		q := engine.Query{Domain: "d", Part: engine.Part{Request: &rules.Descriptor{Entries: []rules.Entry{{Key: "k", Value: "v"}}}, Cost: 1}, At: 1_700_000_000_000_000}
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

// A store that cannot answer does not lead to a ban.
func TestNoBanWithoutKnowing(t *testing.T) {
	rs, problems := rulefile.Parse(rulefile.Source{Name: "t.yaml", Data: []byte("domain: d\nlimits:\n  - {name: r, rate: 1/s, on_limit: shadow_ban, on_store_error: deny}\n")})
	if rs == nil {
		t.Fatal(problems)
	}
	s := memory.New()
	_ = s.Close()
	v, err := engine.New(s, rs).Decide(t.Context(), engine.Query{Domain: "d", Part: engine.Part{Request: &rules.Descriptor{}, Cost: 1}})
	if err == nil || v.Outcome() != engine.Refused {
		t.Errorf("%s, %v", v.Outcome(), err)
	}
}

// Among several refused parts, the action of the first by precedence is taken, and
// among equals of the one that refuses for longest.
func TestFirstOfTheRefusedParts(t *testing.T) {
	refused := func(action rules.Action, retry time.Duration) engine.Verdict {
		return engine.Verdict{
			Rule:     &rules.Rule{OnLimit: rules.OnLimit{Action: action}},
			Decision: store.Decision{Reason: headgate.ReasonLimited, RetryAfter: retry},
		}
	}
	passed := refused(rules.Reject, 0)
	passed.Allowed, passed.Decision.Allowed = true, true
	unknown := engine.Verdict{}
	reject, longer := refused(rules.Reject, time.Second), refused(rules.Reject, time.Minute)
	ban, queue := refused(rules.ShadowBan, time.Hour), refused(rules.Queue, time.Hour)
	for i, row := range []struct {
		parts []engine.Verdict
		want  int // -1 for none
	}{
		{nil, -1},
		{[]engine.Verdict{passed, unknown}, -1},
		{[]engine.Verdict{passed, reject}, 1},
		{[]engine.Verdict{reject, passed}, 0},
		{[]engine.Verdict{unknown, queue}, 1},
		{[]engine.Verdict{queue, ban, reject}, 2},
		{[]engine.Verdict{reject, ban, queue}, 0},
		{[]engine.Verdict{queue, ban}, 1},
		{[]engine.Verdict{ban, queue}, 0},
		{[]engine.Verdict{reject, longer}, 1},
		{[]engine.Verdict{longer, reject}, 0},
		{[]engine.Verdict{reject, reject}, 0},
	} {
		first := engine.First(row.parts)
		if row.want < 0 && first != nil || row.want >= 0 && first != &row.parts[row.want] {
			t.Errorf("row %d: %+v, want part %d", i, first, row.want)
		}
	}
}

// The outcome of a request with several parts, and how long it waits.
func TestOutcomeOfParts(t *testing.T) {
	rs := marked(t, `
domain: api
limits:
  - {name: queued, match: {attributes: {line: {present: true}}}, key: [line], rate: 1/s, burst: 3, algorithm: leaky_bucket, on_limit: {action: delay, max_wait: 10s}}
  - {name: team, match: {attributes: {team: {present: true}}}, key: [team], rate: 1/hour, on_limit: shadow_ban}
  - {name: seen, match: {attributes: {seen: {present: true}}}, key: [seen], rate: 1/hour, mode: shadow}
  - {name: quota, match: {attributes: {quota: {present: true}}}, key: [quota], rate: 1/hour}
`, map[string]func(*rules.Rule){"quota": func(r *rules.Rule) { r.QuotaMode = true }})
	line, seen, red := take(request{"line": "a"}), take(request{"seen": "x"}), take(request{"team": "red"})
	empty, fresh := take(request{"quota": "a"}), take(request{"quota": "b", "line": "b"})
	e := engine.New(memory.New(), rs)
	for i, row := range []struct {
		parts []engine.Part
		want  engine.Outcome
		delay time.Duration
		would int
	}{
		{[]engine.Part{line}, engine.Allowed, 0, 0},
		{[]engine.Part{line}, engine.Delayed, time.Second, 0},
		{[]engine.Part{line, seen}, engine.Delayed, 2 * time.Second, 0},
		{[]engine.Part{line}, engine.Refused, 0, 0},
		{[]engine.Part{seen}, engine.ShadowRefused, 0, 1},
		{[]engine.Part{seen, seen}, engine.ShadowRefused, 0, 2},
		{[]engine.Part{red}, engine.Allowed, 0, 0},
		{[]engine.Part{red}, engine.ShadowBanned, 0, 0},
		{[]engine.Part{red, line}, engine.Refused, 0, 0},
		{[]engine.Part{empty}, engine.Allowed, 0, 0},
		{[]engine.Part{empty, fresh}, engine.Allowed, 0, 0}, // the first has none left
		{[]engine.Part{empty, fresh}, engine.Refused, 0, 0},
		{[]engine.Part{take(request{"line": "c"})}, engine.Allowed, 0, 0},
		{[]engine.Part{take(request{"line": "c"}), empty}, engine.Refused, 0, 0}, // has a turn, but no quota
	} {
		v, err := e.Decide(t.Context(), engine.Query{Domain: "api", At: start, Parts: row.parts})
		if err != nil {
			t.Fatal(err)
		}
		if v.Outcome() != row.want || v.Delay != row.delay || v.WouldRefuse != row.would {
			t.Errorf("row %d: %s after %v, %d would refuse; want %s after %v, %d", i, v.Outcome(), v.Delay, v.WouldRefuse, row.want, row.delay, row.would)
		}
		would := 0
		for _, p := range v.Parts() {
			would += p.WouldRefuse
		}
		if would != row.would {
			t.Errorf("row %d: of the parts %d would refuse, want %d", i, would, row.would)
		}
		v.Release()
	}
	v, err := e.Decide(t.Context(), engine.Query{Domain: "nobody's", At: start, Parts: []engine.Part{line}})
	if err != nil || v.Outcome() != engine.Allowed {
		t.Errorf("an unknown domain: %s, %v", v.Outcome(), err)
	}
	none := engine.New(memory.New(), rs, engine.WithUnknownDomain(engine.UnknownDomainRefuse))
	if v, err = none.Decide(t.Context(), engine.Query{Domain: "nobody's", At: start, Parts: []engine.Part{line}}); err != nil || v.Outcome() != engine.Refused {
		t.Errorf("an unknown domain that is refused: %s, %v", v.Outcome(), err)
	}
}
