package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store/memory"
)

const recordRules = "domain: api\nlimits:\n  - {name: hourly, key: [user], rate: 10/hour, algorithm: fixed_window}\n"

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

// Cancelled reservations cost nothing, so they must leave nothing in a full store,
// where it would evict keys that count.
func TestReservationsLeaveNothing(t *testing.T) {
	e := engine.New(memory.New(memory.WithMaxKeys(1000)), parse(t, recordRules))
	if n := takeAs(t, e, "victim", 20); n != 10 {
		t.Fatalf("%d passed of 10", n)
	}
	first := reserveAs(t, e, "mallory")
	endAs(t, e, first, engine.Done)
	for range 5000 {
		endAs(t, e, reserveAs(t, e, "mallory"), engine.Done)
	}
	if n := takeAs(t, e, "victim", 1); n != 0 {
		t.Error("a key that was exhausted is free")
	}
	endAs(t, e, first, engine.Settled)
	if n := takeAs(t, e, "mallory", 20); n != 10 {
		t.Errorf("%d passed of 10", n)
	}
}

// replaced is a store whose data can be lost.
type replaced struct{ headgate.Store }

// What was lost with a store's data cannot be refunded: the refund would come off later
// counts.
func TestReservationsOfLostData(t *testing.T) {
	store := &replaced{memory.New()}
	e := engine.New(store, parse(t, recordRules))
	var tokens []string
	for range 10 {
		tokens = append(tokens, reserveAs(t, e, "mallory"))
	}
	store.Store = memory.New()
	if n := takeAs(t, e, "mallory", 20); n != 10 {
		t.Fatalf("%d passed of 10", n)
	}
	for _, token := range tokens {
		endAs(t, e, token, engine.Settled)
	}
	if n := takeAs(t, e, "mallory", 20); n != 0 {
		t.Errorf("%d passed, though the limit was used up", n)
	}
}

// forgetful is a store that is unreachable when a record is to be written.
type forgetful struct {
	headgate.Store
	away bool
}

func (f *forgetful) Do(ctx context.Context, ops []headgate.Op, out []headgate.Decision, mode headgate.Mode) error {
	if f.away && strings.HasPrefix(ops[0].Scope, "reserved/") {
		return headgate.ErrUnavailable
	}
	return f.Store.Do(ctx, ops, out, mode)
}

// A reservation whose record could not be written is settled once, whatever its cost.
// What it took is not refunded, because it may no longer be there.
func TestReservationsWithoutARecord(t *testing.T) {
	for cost, charged := range map[int64]int{0: 1, 1: 1, 3: 3} {
		store := &forgetful{memory.New(), true}
		e := engine.New(store, parse(t, recordRules))
		token := reserveAs(t, e, "ann")
		store.away = false
		for i, want := range []engine.Ending{engine.Done, engine.Settled, engine.Settled} {
			s, err := e.Commit(t.Context(), token, cost, start+1e6)
			if err != nil || s.Ending != want || (len(s.Lost) > 0) != (cost == 0) {
				t.Errorf("at %d, call %d: %+v, %v; want %s", cost, i, s, err, want)
			}
		}
		if n := takeAs(t, e, "ann", 20); n != 10-charged {
			t.Errorf("at %d: %d passed, want %d", cost, n, 10-charged)
		}
	}
}
