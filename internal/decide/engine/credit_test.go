package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// A request admitted by credit under a concurrency limit holds no slot. Undoing it, or
// cancelling or committing its reservation, releases no slots of others.
func TestCreditHoldsNoPlace(t *testing.T) {
	db, rs := memory.New(), parse(t, leaseRules)
	e, ctx := engine.New(db, rs), t.Context()
	rule := rs.Rule("api", "exports")
	q := ask(request{"path": "/exports", "user": "ann"}, 1)
	for range 2 {
		v := decide(t, e, q)
		if !v.HasLeases() {
			t.Fatal("no place")
		}
		v.Release()
	}
	grant := store.Op{
		Key: key("ann"), Scope: rule.Scope, Rule: rule.Limit.Rule(), At: q.At, Kind: store.KindGrant, Cost: 3, Duration: time.Hour,
	}
	if _, err := store.Execute(ctx, db, grant); err != nil {
		t.Fatal(err)
	}
	v := decide(t, e, q)
	if !v.Allowed || v.HasLeases() {
		t.Errorf("allowed %t, with a place %t", v.Allowed, v.HasLeases())
	}
	if err := e.Refund(ctx, &v, q.At); err != nil {
		t.Error(err)
	}
	v.Release()
	for _, settle := range []func(token string) (engine.Settlement, error){
		func(token string) (engine.Settlement, error) { return e.Cancel(ctx, token, q.At) },
		func(token string) (engine.Settlement, error) { return e.Commit(ctx, token, 3, q.At) },
	} {
		v, token, err := e.Reserve(ctx, q, time.Minute)
		if err != nil || !v.Allowed {
			t.Fatalf("%+v, %v", v, err)
		}
		v.Release()
		if out, err := settle(token); err != nil || out.Ending != engine.Done || out.InDebt {
			t.Errorf("%+v, %v", out, err)
		}
	}
	if n := left(t, e, "/exports", "exports", 1); n != 0 {
		t.Errorf("%d places are free while both are held", n)
	}
	if n := left(t, e, "/exports", "daily", 1); n != 0 { // 2 taken, 1 undone, 1 cancelled, 1 committed as 3
		t.Errorf("%d left of 5 a day, want 0", n)
	}
}

// outage is a store that answers only the first calls.
type outage struct {
	store.Store
	calls int
}

var errDown = errors.New("down")

func (f *outage) down() bool { f.calls--; return f.calls < 0 }

func (f *outage) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		if f.down() {
			return errDown
		}
		return store.ExecuteAll(ctx, f.Store, ops, out, mode)
	})
}

// A commit without an answer may be retried, and counts at most once. Only a difference
// that does not fit is lost if the store fails between the mark and the charge.
func TestCommitAgainAfterAFailure(t *testing.T) {
	for _, row := range []struct {
		name  string
		cost  int64
		calls int // answered before the store fails
		again engine.Ending
		left  int64 // of 1000, with 400 reserved
	}{
		{"fits, nothing was done", 500, 0, engine.Done, 500},
		{"does not fit, nothing was done", 2000, 0, engine.Done, 0},
		{"does not fit, before the mark", 2000, 1, engine.Done, 0},
		{"does not fit, after the mark", 2000, 2, engine.Settled, 600},
	} {
		t.Run(row.name, func(t *testing.T) {
			store := &outage{Store: memory.New(), calls: 1 << 20}
			e := engine.New(store, parse(t, leaseRules))
			q := ask(request{"path": "/llm", "user": "ann"}, 1)
			q.Cost = 400
			v, token, err := e.Reserve(t.Context(), q, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			v.Release()
			store.calls = row.calls
			if _, err := e.Commit(t.Context(), token, row.cost, q.At); !errors.Is(err, headgate.ErrUnavailable) {
				t.Errorf("the first: %v", err)
			}
			store.calls = 1 << 20
			if out, err := e.Commit(t.Context(), token, row.cost, q.At); err != nil || out.Ending != row.again {
				t.Errorf("again: %+v, %v, want %s", out, err, row.again)
			}
			if n := max(left(t, e, "/llm", "tokens", 1), 0); n != row.left {
				t.Errorf("%d left, want %d", n, row.left)
			}
		})
	}
}
