package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const freeRules = `
domain: api
limits:
  - {name: victims, match: {path: /victim}, key: [user], rate: 10/hour, algorithm: fixed_window}
  - {name: hourly, match: {path: /hourly}, key: [user], rate: 10/hour}
  - {name: quick, match: {path: /quick}, key: [user], rate: 100_000/second}
  - {name: open, match: {path: /open}, key: [user], rate: unlimited}
  - {name: watched, match: {path: /watched}, key: [user], rate: 10/hour, mode: shadow}
`

// However many open reservations have taken nothing, or almost nothing, a full store
// evicts no exhausted key because of them or their settlements.
func TestOpenReservationsPushOutNothing(t *testing.T) {
	for _, row := range []struct {
		path string
		cost int64
		pays int64 // cost at the commit; -1: it stays open
		keys int64 // the most keys allowed
	}{
		{"/hourly", 0, -1, 11},
		{"/hourly", 0, 0, 11},
		{"/hourly", 0, 1, 1000},
		{"/open", 5, -1, 10},
		{"/open", 5, 9, 10},
		{"/watched", 1, -1, 21},
		{"/none", 1, 7, 10},
		{"/quick", 1, -1, 1000},
	} {
		store := memory.New(memory.WithMaxKeys(1000))
		e := engine.New(store, parse(t, freeRules))
		exhaust := func(want int) {
			t.Helper()
			for i := range 10 {
				q := query1("/victim", 1)
				q.Request = request{"path": "/victim", "user": string(rune('a' + i))}
				passed := 0
				for range 10 {
					v := decide(t, e, q)
					if v.Allowed {
						passed++
					}
					v.Release()
				}
				if passed != want {
					t.Fatalf("%+v: %d of a victim's requests passed, want %d", row, passed, want)
				}
			}
		}
		exhaust(10)
		for range 3000 {
			q := query1(row.path, 0)
			q.Cost = row.cost
			v, token, err := e.Reserve(t.Context(), q, engine.MaxReservation)
			if err != nil {
				t.Fatal(err)
			}
			if allowed := v.Allowed; allowed && row.pays >= 0 {
				if _, err := e.Commit(t.Context(), token, row.pays, at(1)); err != nil {
					t.Fatal(err)
				}
			}
			v.Release()
		}
		if n := store.Stats().Keys; n > row.keys {
			t.Errorf("%+v: %d keys", row, n)
		}
		exhaust(0)
	}
}

// A reservation that took nothing is charged once, with its real cost.
func TestReservationsOfNothingAreChargedOnce(t *testing.T) {
	e := engine.New(memory.New(), parse(t, freeRules))
	q := query1("/hourly", 0)
	q.Cost = 0
	v, token, err := e.Reserve(t.Context(), q, time.Hour)
	v.Release()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []engine.Ending{engine.Done, engine.Settled, engine.Settled} {
		if s, err := e.Commit(t.Context(), token, int64(3+i), at(float64(i))); err != nil || s.Ending != want {
			t.Errorf("commit %d: %+v, %v", i, s, err)
		}
	}
	if s, err := e.Commit(t.Context(), token, 3, at(3600)); err != nil || s.Ending != engine.Expired {
		t.Errorf("too late: %+v, %v", s, err)
	}
	if n := left(t, e, "/hourly", "hourly", 2); n != 7 {
		t.Errorf("%d of 10 are left, want 7", n)
	}
}

// parts is a store of two parts with separate keys, like a cluster.
type parts struct{ a, b store.Store }

func (p *parts) of(op *store.Op) store.Store {
	if strings.Contains(op.Key, "team") {
		return p.b
	}
	return p.a
}

func (p *parts) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		for i := range ops {
			if mode == store.AllOrNothing && ops[i].Kind > store.KindPeek && p.of(&ops[i]) != p.of(&ops[0]) {
				return store.ErrCrossSlot
			}
		}
		for i := range ops {
			if p.of(&ops[i]) == p.of(&ops[0]) {
				continue
			}
			for i := range ops { // separately: no test here is refused in one part only
				var err error
				if out[i], err = store.Execute(ctx, p.of(&ops[i]), ops[i]); err != nil {
					return err
				}
			}
			return nil
		}
		return store.ExecuteAll(ctx, p.of(&ops[0]), ops, out, mode)
	})
}

func (p *parts) Close() error { return errors.Join(p.a.Close(), p.b.Close()) }

// If many callers settle a reservation at the same time with different costs, one of
// them does so for all keys, wherever they are.
func TestReservationsAreSettledByOne(t *testing.T) {
	const text = `
domain: api
limits:
  - {name: user, key: [user], rate: 10/hour, algorithm: fixed_window}
  - {name: team, key: [team], rate: 10/hour, algorithm: fixed_window}
`
	for range 100 {
		e := engine.New(&parts{memory.New(), memory.New()}, parse(t, text))
		q := ask(request{"user": "ann", "team": "team-red"}, 0)
		q.Cost = 5
		v, token, err := e.Reserve(t.Context(), q, time.Hour)
		v.Release()
		if err != nil {
			t.Fatal(err)
		}
		costs := []int64{0, 2, 7, 5}
		done := make(chan int64, len(costs))
		for _, cost := range costs {
			go func() {
				s, err := e.Commit(t.Context(), token, cost, at(1))
				if err != nil || s.Ending != engine.Done {
					cost = -1
				}
				done <- cost
			}()
		}
		won := int64(-1)
		for range costs {
			if cost := <-done; cost >= 0 && won >= 0 {
				t.Errorf("settled at %d and %d", won, cost)
			} else if cost >= 0 {
				won = cost
			}
		}
		q.Kind, q.Cost = store.KindPeek, 1
		v = decide(t, e, q)
		for _, r := range v.Results() {
			if r.Decision.Remaining != 10-won {
				t.Errorf("%s has %d left after a cost of %d", r.Rule.Name, r.Decision.Remaining, won)
			}
		}
		v.Release()
	}
}

// What a process has taken in its own memory is settled only there, even during the
// outage.
func TestReservationsOfAnotherMemory(t *testing.T) {
	store := &counted{Store: memory.New()}
	node := func() *engine.Engine {
		return engine.New(store, parse(t, localLeases), engine.WithFallback(memory.New()), engine.WithSecret(shared))
	}
	a, b := node(), node()
	reserve := func(e *engine.Engine, cost int64) (token string, allowed bool) {
		q := query1("/llm", 0)
		q.Cost = cost
		v, token, _ := e.Reserve(t.Context(), q, time.Hour)
		defer v.Release()
		return token, v.Allowed
	}
	reserve(a, 1) // also learns the secret, as b does
	reserve(b, 1)
	store.down = true
	token, _ := reserve(a, 50)
	if _, ok := reserve(b, 50); !ok {
		t.Fatal("the other node's own half was refused")
	}
	if s, err := b.Cancel(t.Context(), token, at(1)); err != nil || s.Ending != engine.Done || len(s.Lost) != 1 {
		t.Errorf("elsewhere: %+v, %v", s, err)
	}
	if _, ok := reserve(b, 1); ok {
		t.Error("the other node has given back what it had not taken")
	}
	for i, want := range []engine.Ending{engine.Done, engine.Settled} {
		if s, err := a.Cancel(t.Context(), token, at(1)); err != nil || s.Ending != want || len(s.Lost) != 0 {
			t.Errorf("cancel %d at home: %+v, %v", i, s, err)
		}
	}
	if _, ok := reserve(a, 50); !ok {
		t.Error("nothing was given back where it was taken")
	}
}
