package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const costRules = `
domain: api
limits:
  - name: tokens
    match: {path: /llm}
    key: [user]
    rate: 100/day
    algorithm: fixed_window
    cost: {estimate: 10, from_response: X-Cost, on_abort: largest}
    on_store_error: {policy: local, share: 0.5}
  - name: refilled
    match: {path: /bucket}
    key: [user]
    rate: 60/minute
    cost: {estimate: 10, from_response: X-Cost}
  - name: watched
    match: {path: /watched}
    key: [user]
    rate: 5/day
    algorithm: fixed_window
    mode: shadow
    cost: {estimate: 10, from_response: X-Cost}
  - {name: plain, match: {path: /plain}, key: [user], rate: 5/day}
`

// counted is a store that counts its calls and can be cut off.
type counted struct {
	store.Store
	calls int
	down  bool
}

func (c *counted) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		if c.calls++; c.down {
			return headgate.ErrUnavailable
		}
		return store.ExecuteAll(ctx, c.Store, ops, out, mode)
	})
}

func told(cost int64, known engine.CostKnowledge) func(*rules.CostAfter) (int64, engine.CostKnowledge) {
	return func(*rules.CostAfter) (int64, engine.CostKnowledge) { return cost, known }
}

func query1(path string, seconds float64) engine.Query {
	return ask(request{"path": path, "user": "ann"}, seconds)
}

// In the end a request costs what its response says, whatever was estimated: the
// difference is charged, even into debt, or refunded, and the store is not called if
// there is none.
func TestCostsAreSettled(t *testing.T) {
	store := &counted{Store: memory.New()}
	e := engine.New(store, parse(t, costRules))
	for i, row := range []struct {
		cost  int64
		known engine.CostKnowledge
		left  int64 // of 100, less the estimate of 10 of the request that checks
		calls int
	}{
		{25, engine.CostKnown, 75, 1},
		{3, engine.CostKnown, 72, 1},
		{10, engine.CostKnown, 62, 0},
		{7, engine.CostEstimated, 52, 0},
		{7, engine.CostAborted, 27, 1}, // the largest so far
		{60, engine.CostKnown, 0, 1},   // into debt
	} {
		v := decide(t, e, query1("/llm", 0))
		if !v.Allowed || !v.HasCostAfter() {
			t.Fatalf("row %d: %+v, %t", i, v.Decision, v.HasCostAfter())
		}
		store.calls = 0
		if err := e.SettleCosts(t.Context(), &v, start, told(row.cost, row.known)); err != nil {
			t.Errorf("row %d: %v", i, err)
		}
		if store.calls != row.calls {
			t.Errorf("row %d: the store was asked %d times, want %d", i, store.calls, row.calls)
		}
		v.Release()
		if n := left(t, e, "/llm", "tokens", 0); n != row.left {
			t.Errorf("row %d: %d left, want %d", i, n, row.left)
		}
	}
	v := decide(t, e, query1("/llm", 0))
	if v.Allowed || v.HasCostAfter() {
		t.Errorf("in debt: %+v, the response tells: %t", v.Decision, v.HasCostAfter())
	}
	if plain := decide(t, e, query1("/plain", 0)); plain.HasCostAfter() {
		t.Error("the response tells the cost of a rule that does not ask it")
	}
}

// What time has already returned is not refunded again.
func TestCostsAreSettledLate(t *testing.T) {
	db := &counted{Store: memory.New()}
	e := engine.New(db, parse(t, costRules))
	for _, row := range []struct {
		name          string
		after         float64
		meanwhile     int64 // taken by others
		left          int64 // of 60 then; 10 of them were back after 10 s
		calls         int
		cost, without int64
	}{
		{"at once", 0, 0, 57, 1, 3, 0},
		{"8 s later", 8, 20, 40, 1, 3, 0}, // of 22 only 2 are refunded
		{"10 s later", 10, 20, 40, 0, 3, 0},
		{"by a clock that has gone back", -1, 20, 37, 1, 3, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			base := 1000 * (1 + row.after)
			e.SetExceptions(nil)
			v := decide(t, e, query1("/bucket", base))
			for range row.meanwhile / 10 {
				other := decide(t, e, query1("/bucket", max(base+row.after, base)))
				other.Release()
			}
			db.calls = 0
			if err := e.SettleCosts(t.Context(), &v, at(base+row.after), told(row.cost, engine.CostKnown)); err != nil {
				t.Error(err)
			}
			v.Release()
			if db.calls != row.calls {
				t.Errorf("the store was asked %d times, want %d", db.calls, row.calls)
			}
			if n := left(t, e, "/bucket", "refilled", max(base+row.after, base)); n != row.left {
				t.Errorf("%d left, want %d", n, row.left)
			}
			reset := store.Op{Key: key("ann"), Scope: e.Rules().Rule("api", "refilled").Scope, Rule: headgate.PerMinute(60).Rule(), Kind: store.KindReset, At: at(base)}
			if _, err := store.Execute(t.Context(), db, reset); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Nothing is settled for a rule that only observes and would have refused, or for a
// released verdict.
func TestCostsThatAreNotSettled(t *testing.T) {
	db := &counted{Store: memory.New()}
	e := engine.New(db, parse(t, costRules))
	v := decide(t, e, query1("/watched", 0))
	if v.Results()[0].Decision.Reason != store.ReasonShadow {
		t.Fatalf("%+v", v.Results()[0].Decision)
	}
	db.calls = 0
	for range 2 {
		if err := e.SettleCosts(t.Context(), &v, start, told(99, engine.CostKnown)); err != nil || db.calls != 0 {
			t.Errorf("%v, the store was asked %d times", err, db.calls)
		}
		v.Release()
	}
	plain := decide(t, e, query1("/plain", 0))
	db.calls = 0
	if err := e.SettleCosts(t.Context(), &plain, start, told(99, engine.CostKnown)); err != nil || db.calls != 0 {
		t.Errorf("a rule without a cost from the response: %v, asked %d times", err, db.calls)
	}
}

// What memory admitted while the store was down is settled in memory, under this
// process's share; a store that is down returns an error.
func TestCostsOfTheFallback(t *testing.T) {
	store, local := &counted{Store: memory.New()}, &counted{Store: memory.New()}
	e := engine.New(store, parse(t, costRules), engine.WithFallback(local))
	ofStore := decide(t, e, query1("/llm", 0))
	store.down = true
	ofMemory, err := e.Decide(t.Context(), query1("/llm", 0))
	if !errors.Is(err, headgate.ErrUnavailable) || ofMemory.Decision.Reason != headgate.ReasonFallback || ofMemory.Decision.Remaining != 40 {
		t.Fatalf("%+v, %v", ofMemory.Decision, err)
	}
	if err := e.SettleCosts(t.Context(), &ofMemory, start, told(30, engine.CostKnown)); err != nil {
		t.Errorf("memory: %v", err)
	}
	if err := e.SettleCosts(t.Context(), &ofStore, start, told(30, engine.CostKnown)); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("a store that is down: %v", err)
	}
	again, _ := e.Decide(t.Context(), query1("/llm", 0))
	if again.Decision.Remaining != 10 { // 50 - 30 - 10
		t.Errorf("memory has %d left, want 10", again.Decision.Remaining)
	}
	store.down = false
	if n := left(t, e, "/llm", "tokens", 0); n != 90 {
		t.Errorf("the store has %d left, want 90: it was not charged for what memory gave", n)
	}
	// Without a fallback everything is in the store.
	alone := engine.New(store, parse(t, costRules))
	v := decide(t, alone, query1("/llm", 0))
	if err := alone.SettleCosts(t.Context(), &v, start, told(30, engine.CostKnown)); err != nil {
		t.Error(err)
	}
	if n := left(t, alone, "/llm", "tokens", 0); n != 60 {
		t.Errorf("%d left, want 60", n)
	}
}

// The largest cost of a rule is forgotten only when the rule is removed.
func TestLargestCostOfARuleThatGoes(t *testing.T) {
	for name, during := range map[string]string{"goes": excepted, "stays": costRules} {
		e := engine.New(memory.New(), parse(t, costRules))
		settle := func(cost int64, known engine.CostKnowledge) {
			v := decide(t, e, query1("/llm", 0))
			defer v.Release()
			if err := e.SettleCosts(t.Context(), &v, start, told(cost, known)); err != nil {
				t.Fatal(err)
			}
		}
		settle(40, engine.CostKnown)
		e.SetRules(parse(t, during))
		e.SetRules(parse(t, costRules))
		settle(0, engine.CostAborted)
		want := map[string]int64{"goes": 50, "stays": 20}[name]
		if n := left(t, e, "/llm", "tokens", 0); n != want {
			t.Errorf("a rule that %s: %d left, want %d", name, n, want)
		}
	}
}
