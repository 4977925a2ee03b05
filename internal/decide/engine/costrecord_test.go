package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store/memory"
)

// If a response cost less than the estimate, the difference is refunded only to a store
// that has counted the estimate, not to one that has lost its data since: there, the
// refund would come off what others have taken.
func TestCostsOfLostData(t *testing.T) {
	const text = `
domain: api
limits:
  - {name: tokens, key: [user], rate: 10/hour, algorithm: ALGORITHM, cost: {estimate: 10, from_response: X-Cost}}
  - {name: plain, key: [user], rate: 100/hour, algorithm: fixed_window}
`
	for _, algorithm := range []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_log", "sliding_window", "sliding_buckets"} {
		for _, row := range []struct {
			lost, down bool
			undo       bool
			passes     bool // whether another with the same estimate passes
		}{
			{passes: true},
			{lost: true},
			{down: true},
			{undo: true, passes: true},
			{undo: true, lost: true},
			{undo: true, down: true},
		} {
			data := memory.New()
			store := &counted{Store: data}
			e := engine.New(store, parse(t, strings.Replace(text, "ALGORITHM", algorithm, 1)), engine.WithRecords())
			name := fmt.Sprintf("%s %+v", algorithm, row)
			take := func(seconds float64) (engine.Verdict, bool) {
				v := decide(t, e, query1("/", seconds))
				return v, v.Allowed
			}
			slow, ok := take(0)
			if _, second := take(0); !ok || second {
				t.Fatalf("%s: allowed %t and %t", name, ok, second)
			}
			store.down = row.down
			e.NoteCosts(t.Context(), &slow)
			e.AwaitNotes(&slow)
			store.down = false
			if row.lost {
				data = memory.New()
				store.Store = data
				if _, ok := take(1); !ok {
					t.Fatalf("%s: the store has not lost its data", name)
				}
			}
			var err error
			if row.undo {
				err = e.Undo(t.Context(), &slow, at(2))
			} else {
				err = e.SettleCosts(t.Context(), &slow, at(2), told(0, engine.CostKnown))
			}
			slow.Release()
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			// A bucket refills by 10 per hour, and the take was 2 s ago.
			v, ok := take(20)
			if row.passes && strings.HasSuffix(algorithm, "_bucket") {
				ok = ok || v.Decision.Remaining == 9
			}
			if ok != row.passes {
				t.Errorf("%s: then another passed: %t, %+v", name, ok, v.Decision)
			}
			if n := data.Stats().Keys; n > 2 {
				t.Errorf("%s: %d keys, want the counts only", name, n)
			}
		}
	}
}

// A cost equal to the estimate or larger needs no record any more: it is charged
// whatever the store has lost, and no record remains.
func TestCostRecordsLeaveNothing(t *testing.T) {
	for _, row := range []struct {
		cost  int64
		known engine.CostKnowledge
		left  int64 // of 100
	}{{10, engine.CostKnown, 90}, {25, engine.CostKnown, 75}, {4, engine.CostKnown, 96}, {0, engine.CostEstimated, 90}} {
		store := memory.New()
		e := engine.New(store, parse(t, costRules), engine.WithRecords())
		v := decide(t, e, query1("/llm", 0))
		e.NoteCosts(t.Context(), &v)
		if err := e.SettleCosts(t.Context(), &v, at(1), told(row.cost, row.known)); err != nil {
			t.Fatal(err)
		}
		v.Release()
		if n := left(t, e, "/llm", "tokens", 1); n != row.left {
			t.Errorf("%+v: %d left", row, n)
		}
		if n := store.Stats().Keys; n != 1 {
			t.Errorf("%+v: %d keys", row, n)
		}
	}
}

// If nothing can be lost unnoticed or settled later, no record is written.
func TestCostsWithoutRecords(t *testing.T) {
	store := &counted{Store: memory.New()}
	for _, e := range []*engine.Engine{
		engine.New(store, parse(t, costRules)), engine.New(store, parse(t, costRules), engine.WithRecords()),
	} {
		v := decide(t, e, query1("/plain", 0))
		store.calls = 0
		e.NoteCosts(t.Context(), &v)
		e.AwaitNotes(&v)
		v.Release()
		e.NoteCosts(t.Context(), &v)
		if store.calls != 0 {
			t.Errorf("the store was asked %d times", store.calls)
		}
	}
}
