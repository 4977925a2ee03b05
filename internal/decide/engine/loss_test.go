package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const markRules = "domain: api\nlimits:\n  - {name: hourly, key: [user], rate: 10/hour, algorithm: fixed_window}\n"

// reserveAs reserves one request of a user for a day.
func reserveAs(t *testing.T, e *engine.Engine, user string) string {
	t.Helper()
	v, token, err := e.Reserve(t.Context(), ask(request{"user": user}, 0), 24*time.Hour)
	defer v.Release()
	if err != nil || !v.Allowed {
		t.Fatalf("%+v, %v", v.Decision, err)
	}
	return token
}

func endAs(t *testing.T, e *engine.Engine, token string, want engine.Ending) {
	t.Helper()
	if s, err := e.Cancel(t.Context(), token, start+1e6); err != nil || s.Ending != want {
		t.Fatalf("%+v, %v; want %s", s, err, want)
	}
}

// takeAs sends n requests of a user and returns how many passed.
func takeAs(t *testing.T, e *engine.Engine, user string, n int) (passed int) {
	t.Helper()
	for range n {
		v := decide(t, e, ask(request{"user": user}, 2))
		if v.Allowed {
			passed++
		}
		v.Release()
	}
	return passed
}

// What a full store remembers of settled reservations evicts no key that has taken more.
func TestSettledReservationsPushOutNothing(t *testing.T) {
	e := engine.New(memory.New(memory.WithMaxKeys(1000)), parse(t, markRules))
	if n := takeAs(t, e, "victim", 20); n != 10 {
		t.Fatalf("%d passed of 10", n)
	}
	for range 5000 {
		token := reserveAs(t, e, "mallory")
		endAs(t, e, token, engine.Done)
		endAs(t, e, token, engine.Settled)
	}
	if n := takeAs(t, e, "victim", 1); n != 0 {
		t.Error("a key that was exhausted is free")
	}
	if n := takeAs(t, e, "mallory", 20); n != 10 {
		t.Errorf("%d passed of 10", n)
	}
}

// replaced is a store whose data can be lost.
type replaced struct{ store.Store }

// Once a store has lost its data, a refund may give back what nobody has: at most what
// was taken before, so at most one limit more passes. Each take is still refunded once.
func TestRefundsAfterALoss(t *testing.T) {
	const text = `
domain: api
limits:
  - {name: tokens, key: [user], rate: 10/hour, algorithm: ALGORITHM, cost: {estimate: 10, from_response: X-Cost}}
`
	refunds := map[string]func(*engine.Engine, *engine.Verdict, string) error{
		"cost": func(e *engine.Engine, v *engine.Verdict, _ string) error {
			return e.SettleCosts(t.Context(), v, at(2), told(0, engine.CostKnown))
		},
		"undo": func(e *engine.Engine, v *engine.Verdict, _ string) error { return e.Refund(t.Context(), v, at(2)) },
		"cancel": func(e *engine.Engine, _ *engine.Verdict, token string) error {
			_, err := e.Cancel(t.Context(), token, at(2))
			return err
		},
	}
	// take takes as often as it can, 10 each time.
	take := func(e *engine.Engine, seconds float64) (passed int) {
		for range 3 {
			v := decide(t, e, query1("/", seconds))
			if v.Allowed {
				passed++
			}
			v.Release()
		}
		return passed
	}
	for _, algorithm := range []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_log", "sliding_window", "sliding_buckets"} {
		for how, refund := range refunds {
			store := &replaced{memory.New()}
			e := engine.New(store, parse(t, strings.Replace(text, "ALGORITHM", algorithm, 1)))
			v, token, err := e.Reserve(t.Context(), query1("/", 0), time.Hour)
			if err != nil || !v.Allowed {
				t.Fatalf("%+v, %v", v.Decision, err)
			}
			store.Store = memory.New()
			passed := take(e, 1)
			for range 3 {
				if err := refund(e, &v, token); err != nil {
					t.Error(err)
				}
			}
			if passed += take(e, 3); passed > 2 {
				t.Errorf("%s, %s: %d limits passed after the loss, want 2 at most", algorithm, how, passed)
			}
			v.Release()
		}
	}
}
