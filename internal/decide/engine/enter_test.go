package engine_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store/memory"
)

const turnsAndPlaces = `
domain: api
limits:
  - {name: places, match: {path: /turns}, concurrency: 3}
  - {name: watched, match: {path: /turns}, concurrency: 2, mode: shadow}
  - {name: turns, match: {path: /turns}, key: [user], rate: 1/second, burst: 20, algorithm: leaky_bucket, on_limit: delay}
  - {name: daily, match: {path: /turns}, key: [user], rate: 100/day, algorithm: fixed_window}
  - {name: few, match: {path: /rates}, concurrency: 3}
  - {name: steady, match: {path: /rates}, key: [user], rate: 100/second}
`

// inTurn is a query from a door that holds requests back itself.
func inTurn(path string, seconds float64) engine.Query {
	q := query1(path, seconds)
	q.Waits = true
	return q
}

// Requests that wait for their turn hold no slot, not even for a moment, so any number
// of them may arrive together. Each takes one when its turn has come, or is refused and
// has taken nothing.
func TestPlacesAreTakenInTurn(t *testing.T) {
	e := engine.New(memory.New(), parse(t, turnsAndPlaces))
	together := make([]engine.Verdict, 12)
	for i := range together {
		v := decide(t, e, inTurn("/turns", 0))
		if !v.Allowed || v.Delay.Seconds() != float64(i) || v.HasLeases() || !v.Defers() {
			t.Fatalf("request %d: allowed %t, %s, leases %t, defers %t", i, v.Allowed, v.Delay, v.HasLeases(), v.Defers())
		}
		together[i] = v
	}
	if n := left(t, e, "/turns", "daily", 0); n != 88 {
		t.Errorf("%d left of the day, want 88", n)
	}
	for i := range together {
		v := &together[i]
		if err := e.Enter(t.Context(), v, at(float64(i))); err != nil {
			t.Fatal(err)
		}
		entered, places, would := i < 3, min(i+1, 3), 0
		if i >= 2 {
			would = 1
		}
		if v.Allowed != entered || v.HasLeases() != entered || v.WouldRefuse != would || v.Defers() {
			t.Errorf("turn %d: allowed %t, leases %t, %d would refuse, defers %t", i, v.Allowed, v.HasLeases(), v.WouldRefuse, v.Defers())
		}
		if n := left(t, e, "/turns", "places", float64(i)); n != int64(3-places) {
			t.Errorf("turn %d: %d places left, want %d", i, n, 3-places)
		}
		if !entered && (v.Rule.Name != "places" || v.Decision.Reason != headgate.ReasonLimited || v.Refuser() == nil) {
			t.Errorf("turn %d: refused by %v, %+v", i, v.Rule, v.Decision)
		}
	}
	if n := left(t, e, "/turns", "daily", 11); n != 97 {
		t.Errorf("%d left of the day, want 97: three have gone on", n)
	}
	for i := range together {
		if _, err := e.ReleaseLeases(t.Context(), together[i].Leases(nil), at(12)); err != nil {
			t.Error(err)
		}
		together[i].Release()
	}
	if n := left(t, e, "/turns", "places", 12); n != 3 {
		t.Errorf("%d places left, want 3", n)
	}
}

// Slots are taken with the decision if no limit makes requests wait, or if the door
// does not hold them back.
func TestPlacesAreTakenAtOnce(t *testing.T) {
	for name, q := range map[string]engine.Query{"no turns": inTurn("/rates", 0), "a door that lets its caller wait": query1("/turns", 0)} {
		e := engine.New(memory.New(), parse(t, turnsAndPlaces))
		for i := range 4 {
			v := decide(t, e, q)
			if want := i < 3; v.Allowed != want || v.HasLeases() != want || v.Defers() {
				t.Errorf("%s, request %d: allowed %t, leases %t, defers %t", name, i, v.Allowed, v.HasLeases(), v.Defers())
			}
			if err := e.Enter(t.Context(), &v, at(0)); err != nil || v.Allowed != (i < 3) {
				t.Errorf("%s, request %d: Enter changed the answer, %v", name, i, err)
			}
			v.Release()
		}
	}
}

// A request that finds all slots taken on arrival takes no turn.
func TestNoTurnWithoutAPlace(t *testing.T) {
	e := engine.New(memory.New(), parse(t, turnsAndPlaces))
	for range 3 {
		decide(t, e, query1("/turns", 0))
	}
	if v := decide(t, e, inTurn("/turns", 10)); v.Allowed || v.Rule.Name != "places" || v.Defers() {
		t.Errorf("%+v", v.Decision)
	}
	if n := left(t, e, "/turns", "daily", 10); n != 97 {
		t.Errorf("%d left of the day, want 97", n)
	}
}

// If the store is down when its turn comes, the rule decides whether a request passes;
// if it does not, what it took is refunded.
func TestEnterWithoutTheStore(t *testing.T) {
	for policy, want := range map[string]bool{"allow": true, "deny": false} {
		store := &counted{Store: memory.New()}
		e := engine.New(store, parse(t, `
domain: api
limits:
  - {name: places, concurrency: 3, on_store_error: `+policy+`}
  - {name: turns, key: [user], rate: 1/second, burst: 20, algorithm: leaky_bucket, on_limit: delay}
`))
		v := decide(t, e, inTurn("/", 0))
		store.down = true
		err := e.Enter(t.Context(), &v, at(0))
		if v.Allowed != want || err == nil || v.HasLeases() {
			t.Errorf("%s: allowed %t, leases %t, %v", policy, v.Allowed, v.HasLeases(), err)
		}
		v.Release()
	}
}

// Queued requests work the same way: Again gives them their turns.
func TestAgainTakesPlacesInTurn(t *testing.T) {
	e := engine.New(memory.New(), parse(t, turnsAndPlaces))
	claims := []engine.Claim{{Rule: "places", Cost: 1}, {Rule: "turns", Key: key("ann"), Cost: 1}}
	var last engine.Verdict
	for i := range 4 {
		v, err := e.Again(context.Background(), "api", claims, at(0))
		if err != nil || !v.Allowed || v.HasLeases() || !v.Defers() {
			t.Fatalf("entry %d: %+v, %v", i, v.Decision, err)
		}
		last = v
	}
	if err := e.Enter(t.Context(), &last, at(3)); err != nil || !last.HasLeases() {
		t.Errorf("no place in its turn: %+v, %v", last.Decision, err)
	}
}

// Requests whose end nobody will know have no slots: rules of concurrency do not hold for
// them. They are explained all the same.
func TestEndlessRequestsTakeNoSlots(t *testing.T) {
	e := engine.New(memory.New(), parse(t, "domain: api\nlimits:\n  - {name: places, concurrency: 1}\n  - {name: calls, rate: 9/minute}\n"))
	r := request{"path": "/"}
	for range 2 {
		q := ask(r, 0)
		q.Endless = true
		if v := decide(t, e, q); !v.Allowed || len(v.Results()) != 1 {
			t.Errorf("%+v", v)
		}
		if v := decide(t, e, engine.Query{Domain: "api", Parts: []engine.Part{{Request: r, Cost: 1}}, At: start}); !v.Allowed || len(v.Parts()[0].Results()) != 1 {
			t.Errorf("in parts: %+v", v)
		}
	}
	if x, err := e.Explain(t.Context(), query(r)); err != nil || !x.Parts[0].Rules[0].Applies || x.Parts[0].Rules[0].Decision.Remaining != 1 {
		t.Errorf("%+v, %v", x, err)
	}
}
