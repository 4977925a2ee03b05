package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// flaky is a memory store that can be cut off, and then takes time to fail.
type flaky struct {
	store.Store
	down bool
	slow time.Duration
}

func (f *flaky) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		if err := f.answers(ctx); err != nil {
			return err
		}
		return store.ExecuteAll(ctx, f.Store, ops, out, mode)
	})
}

func (f *flaky) answers(ctx context.Context) error {
	select {
	case <-time.After(f.slow):
	case <-ctx.Done():
		return errors.Join(headgate.ErrUnavailable, ctx.Err())
	}
	if f.down {
		return headgate.ErrUnavailable
	}
	return nil
}

const policyRules = `
domain: api
limits:
  - {name: local, match: {path: [/local, /both, /mixed]}, key: [user], rate: 8/hour, on_store_error: {policy: local, share: 0.25}}
  - {name: whole, match: {path: [/both]}, key: [user], rate: 1/hour, on_store_error: local}
  - {name: deny, match: {path: [/deny, /mixed]}, key: [user], rate: 8/hour, on_store_error: deny}
  - {name: allow, match: {path: [/allow]}, key: [user], rate: 8/hour}
  - {name: watched, match: {path: [/local]}, key: [user], rate: 1/hour, mode: shadow}
`

// TestFallbackTrace checks one rule after another while the store is down.
func TestFallbackTrace(t *testing.T) {
	store := &flaky{Store: memory.New()}
	e := engine.New(store, parse(t, policyRules), engine.WithFallback(memory.New()))
	for i, row := range []struct {
		down      bool
		path      string
		allowed   bool
		rule      string
		reason    headgate.Reason
		remaining int64
	}{
		{false, "/local", true, "local", headgate.ReasonOK, 7},
		{true, "/allow", true, "allow", headgate.ReasonFailOpen, 0},
		{true, "/deny", false, "deny", headgate.ReasonFailClosed, 0},
		{true, "/mixed", false, "deny", headgate.ReasonFailClosed, 0}, // the local rule is not charged
		{true, "/both", true, "whole", headgate.ReasonFallback, 0},    // 1 of 2, and 1 of 1
		{true, "/both", false, "whole", headgate.ReasonFallback, 0},   // refuses: the other is not charged
		{true, "/local", true, "local", headgate.ReasonFallback, 0},   // 2 of 2
		{true, "/local", false, "local", headgate.ReasonFallback, 0},
		{false, "/local", true, "local", headgate.ReasonOK, 6}, // the store's own counts apply
	} {
		store.down = row.down
		v, err := e.Decide(context.Background(), ask(request{"path": row.path, "user": "ann"}, 0))
		if errors.Is(err, headgate.ErrUnavailable) != row.down {
			t.Errorf("row %d: %v", i, err)
		}
		if v.Allowed != row.allowed || v.Rule.Name != row.rule || v.Decision.Reason != row.reason || v.Decision.Remaining != row.remaining {
			t.Errorf("row %d, %s: allowed %t by %s, %+v", i, row.path, v.Allowed, v.Rule.Name, v.Decision)
		}
		v.Release()
	}
}

// TestFallbackMissingOrBroken: a local rule without a memory store lets requests pass.
func TestFallbackMissingOrBroken(t *testing.T) {
	for name, options := range map[string][]engine.Option{
		"missing": nil,
		"broken":  {engine.WithFallback(broken{})},
	} {
		e := engine.New(broken{}, parse(t, policyRules), options...)
		v, err := e.Decide(context.Background(), ask(request{"path": "/local", "user": "ann"}, 0))
		if !errors.Is(err, headgate.ErrUnavailable) || !v.Allowed || v.Decision.Reason != headgate.ReasonFailOpen {
			t.Errorf("%s: %+v, %v", name, v.Decision, err)
		}
	}
}

// TestUndoAfterOutage: what was taken from memory is returned to memory.
func TestUndoAfterOutage(t *testing.T) {
	db, local := &flaky{Store: memory.New()}, memory.New()
	e := engine.New(db, parse(t, policyRules), engine.WithFallback(local))
	q := ask(request{"path": "/local", "user": "ann"}, 0)
	first := decide(t, e, q)
	first.Release()
	db.down = true
	v, _ := e.Decide(context.Background(), q)
	if !v.Allowed || v.Decision.Reason != headgate.ReasonFallback {
		t.Fatalf("%+v", v.Decision)
	}
	db.down = false
	for range 2 {
		if err := e.Refund(context.Background(), &v, start); err != nil {
			t.Fatal(err)
		}
	}
	q.Kind = store.KindPeek
	if again := decide(t, e, q); again.Decision.Remaining != 7 {
		t.Errorf("the store has %d of 8 left, and 1 was taken from it", again.Decision.Remaining)
	}
	db.down = true
	if again, _ := e.Decide(context.Background(), q); again.Decision.Remaining != 2 {
		t.Errorf("memory has %d of 2 left, and all was given back", again.Decision.Remaining)
	}
}

// TestOneRequestWaitsOnce: rules that only observe need a second call, but do not get a
// second deadline.
func TestOneRequestWaitsOnce(t *testing.T) {
	const timeout = 50 * time.Millisecond
	for _, tt := range []struct {
		name string
		slow time.Duration
		down bool
		took time.Duration
	}{
		{"healthy", 10 * time.Millisecond, false, 20 * time.Millisecond},
		{"failed", 10 * time.Millisecond, true, 10 * time.Millisecond},
		{"stalled", time.Hour, false, timeout},
		{"slow", 30 * time.Millisecond, false, timeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &flaky{Store: memory.New(), slow: tt.slow, down: tt.down}
				e := engine.New(store, parse(t, policyRules), engine.WithTimeout(timeout))
				begin := time.Now()
				v, err := e.Decide(t.Context(), ask(request{"path": "/local", "user": "ann"}, 0))
				if took := time.Since(begin); took != tt.took || !v.Allowed {
					t.Errorf("took %s, want %s (%v)", took, tt.took, err)
				}
			})
		})
	}
}
