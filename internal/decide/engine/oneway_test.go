package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const oneWay = `
domain: api
limits:
  - {name: secret, match: {path: /a}, key: [user], rate: 9/hour, on_limit: shadow_ban, on_store_error: local}
  - {name: busy, match: {path: /a}, key: [user], concurrency: 3, on_store_error: {policy: local, share: 1}}
  - {name: user, match: {path: /a}, key: [user], rate: 8/hour, on_store_error: {policy: local, share: 0.5}}
  - {name: seen, match: {path: /a}, key: [user], rate: 7/hour, mode: shadow, on_store_error: deny}
`

// A banned request takes no slot, not even in memory when the store is down: it would
// never be released.
func TestHiddenBanTakesNoPlaceOfMemory(t *testing.T) {
	rs := parse(t, oneWay)
	store := &downable{Store: memory.New(), fails: true}
	e := engine.New(store, rs, engine.WithFallback(memory.New()))
	e.SetExceptions(engine.NewExceptions([]engine.Exception{banned(rs, "secret", "ann", 60)}, at(0)))
	for i := range 4 {
		v, err := e.Decide(t.Context(), query1("/a", 0))
		if !errors.Is(err, headgate.ErrUnavailable) || v.Outcome() != engine.ShadowBanned || v.HasLeases() {
			t.Errorf("request %d: %s, %v, leases: %t", i, v.Outcome(), err, v.HasLeases())
		}
		v.Release()
	}
}

// While the store is down, Explain agrees with Decide: memory answers.
func TestExplainInAnOutage(t *testing.T) {
	store := &downable{Store: memory.New(), fails: true}
	e := engine.New(store, parse(t, oneWay), engine.WithFallback(memory.New()))
	r := request{"path": "/a", "user": "ann"}
	for i := range 5 {
		x, err := e.Explain(t.Context(), query(r))
		if !errors.Is(err, headgate.ErrUnavailable) || x.Verdict.Allowed != (i < 3) || x.Verdict.WouldRefuse != 0 {
			t.Errorf("explained %d: %+v, %v", i, x.Verdict, err)
		}
		for _, rule := range x.Parts[0].Rules {
			if want := map[bool]headgate.Reason{true: headgate.ReasonFallback, false: headgate.ReasonFailClosed}[rule.Enforced]; rule.Decision.Reason != want {
				t.Errorf("explained %d: %s: %+v, want %s", i, rule.Rule.Name, rule.Decision, want)
			}
		}
		v, err := e.Decide(t.Context(), query1("/a", 0))
		if !errors.Is(err, headgate.ErrUnavailable) || v.Allowed != x.Verdict.Allowed || v.Rule != x.Verdict.Rule {
			t.Errorf("decided %d: %+v, %v", i, v.Decision, err)
		}
		for _, result := range v.Results() {
			if d := result.Decision; !result.Enforced && (d.Reason != headgate.ReasonFailOpen || d.Limit != 7) {
				t.Errorf("decided %d: %s: %+v", i, result.Rule.Name, d)
			}
		}
		v.Release()
	}
}

// A queued request whose key has since been banned waits until the ban ends, whatever
// the action of the other rules, which are not checked.
func TestAgainUnderAHiddenBan(t *testing.T) {
	rs := parse(t, oneWay)
	store := &counted{Store: memory.New()}
	e := engine.New(store, rs)
	e.SetExceptions(engine.NewExceptions([]engine.Exception{banned(rs, "secret", "ann", 60)}, at(0)))
	claims := []engine.Claim{{Rule: "user", Key: key("ann"), Cost: 1}, {Rule: "secret", Key: key("ann"), Cost: 1}}
	v, err := e.Again(t.Context(), "api", claims, at(0))
	if err != nil || v.Allowed || v.Rule.Name != "secret" || v.Decision.RetryAfter != time.Minute || len(v.Results()) != 1 || store.calls != 0 {
		t.Errorf("%+v of %d results, %v; the store was asked %d times", v.Decision, len(v.Results()), err, store.calls)
	}
}

// Invalid queries are refused in a domain without rules as well, whichever method is
// used.
func TestWrongQueriesOfUnknownDomains(t *testing.T) {
	e := engine.New(memory.New(), parse(t, oneWay))
	one, err := e.Decide(t.Context(), engine.Query{Domain: "nobody's", Part: engine.Part{Request: user("ann"), Cost: -1}})
	if !errors.Is(err, headgate.ErrInvalidCost) || one.Allowed || one.Known || one.Decision.Reason != headgate.ReasonTooLarge {
		t.Errorf("%+v, %v", one, err)
	}
	all, err := e.Decide(t.Context(), engine.Query{Domain: "nobody's", Parts: []engine.Part{part(user("ann"), -1, store.KindTake)}})
	if !errors.Is(err, headgate.ErrInvalidCost) || all.Allowed || all.Known || all.Parts()[0].Decision.Reason != headgate.ReasonTooLarge {
		t.Errorf("%+v, %v", all, err)
	}
	x, err := e.Explain(t.Context(), engine.ExplainQuery{Domain: "nobody's", Parts: []rules.Request{user("ann")}, Cost: -1})
	if !errors.Is(err, headgate.ErrInvalidCost) || x.Verdict.Allowed || x.Verdict.Known {
		t.Errorf("%+v, %v", x, err)
	}
}
