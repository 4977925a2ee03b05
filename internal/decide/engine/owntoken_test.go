package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store/memory"
)

// secrets is a fixed source of secrets.
type secrets func(ctx context.Context) ([][]byte, error)

func (s secrets) Known(ctx context.Context) ([][]byte, error) { return s(ctx) }
func (s secrets) All(ctx context.Context) ([][]byte, error)   { return s(ctx) }

// A node that has never known the secret, because the store was always down, issues
// tokens for what is in its own memory without calling the store. They are valid only
// there, even after the secret becomes known.
func TestTokensWithoutTheSecret(t *testing.T) {
	store := &counted{Store: memory.New(), down: true}
	asked, known := 0, false
	secrets := secrets(func(ctx context.Context) ([][]byte, error) {
		if asked++; !known {
			return nil, headgate.ErrUnavailable
		}
		secret, err := shared(ctx)
		return [][]byte{secret}, err
	})
	node := func() *engine.Engine {
		return engine.New(store, parse(t, localLeases), engine.WithFallback(memory.New()), engine.WithSecrets(secrets))
	}
	e, other := node(), node()
	var leases []string
	for range 2 { // half of 4
		v, _ := e.Decide(t.Context(), query1("/exports", 0))
		token, err := e.LeaseToken(t.Context(), &v)
		if err != nil || token == "" || asked != 0 {
			t.Fatalf("%q, %v, asked %d times", token, err, asked)
		}
		leases = append(leases, token)
		v.Release()
	}
	q := query1("/llm", 0)
	q.Cost = 50
	v, reservation, err := e.Reserve(t.Context(), q, time.Hour)
	v.Release()
	if reservation == "" || !errors.Is(err, headgate.ErrUnavailable) || asked != 0 {
		t.Fatalf("%q, %v, asked %d times", reservation, err, asked)
	}
	if ending, err := e.ReleaseToken(t.Context(), leases[0], at(1)); ending != engine.Done || err != nil || asked != 0 {
		t.Errorf("released in the outage: %s, %v, asked %d times", ending, err, asked)
	}
	if v, _ := e.Decide(t.Context(), query1("/exports", 1)); !v.Allowed {
		t.Error("the place is not free")
	}
	known, store.down = true, false
	for _, token := range []string{leases[1], reservation} {
		if _, err := other.ReleaseToken(t.Context(), token, at(2)); !errors.Is(err, engine.ErrBadToken) {
			t.Errorf("elsewhere: %v", err)
		}
	}
	if ending, err := e.ReleaseToken(t.Context(), leases[1], at(2)); ending != engine.Done || err != nil {
		t.Errorf("released after the outage: %s, %v", ending, err)
	}
	for i, want := range []engine.Ending{engine.Done, engine.Settled} {
		if s, err := e.Cancel(t.Context(), reservation, at(2)); err != nil || s.Ending != want {
			t.Errorf("cancel %d: %+v, %v", i, s, err)
		}
	}
	store.down = true
	q.At = at(3)
	if v, _ := e.Decide(t.Context(), q); !v.Allowed {
		t.Error("nothing was given back to memory")
	}
}

// However many requests get no token, one warning a minute is logged.
func TestWarningsOfTokens(t *testing.T) {
	e := engine.New(memory.New(), parse(t, leaseRules))
	told := ""
	for _, second := range []float64{0, 1, 59, 60, 61, 30, 119, 120} {
		v := decide(t, e, ask(request{"path": "/llm", "user": "ann"}, second))
		told += map[bool]string{true: "!", false: "."}[e.WarnsOfToken(&v)]
		v.Release()
	}
	if told != "!..!...!" {
		t.Errorf("told %s", told)
	}
}
