package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/homes"
	"github.com/headgate/headgate/store/memory"
)

// silent is a store that does not answer before its caller stops waiting; alive is one that
// fails as a remote one does when the caller has gone.
type (
	silent struct{ store.Store }
	alive  struct{ store.Store }
)

func (silent) Do(ctx context.Context, b *store.Batch) {
	b.Each(func([]store.Op, []store.Decision, store.Mode) error {
		<-ctx.Done()
		return headgate.ErrUnavailable
	})
}

func (s alive) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		if ctx.Err() != nil {
			return headgate.ErrUnavailable
		}
		return store.ExecuteAll(ctx, s.Store, ops, out, mode)
	})
}

// A home that is silent until the request may not wait any longer: the limits of this
// region still get back what they took for the refused request.
func TestASilentHomeUsesUpTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		us := alive{memory.New()}
		counts, err := homes.New(us, homes.Options{Region: "us", Homes: map[string]store.Store{"eu": silent{memory.New()}}, Partial: true})
		if err != nil {
			t.Fatal(err)
		}
		e := engine.New(counts, parse(t, homeRules), engine.WithTimeout(time.Second), engine.WithFallback(memory.New()))
		for _, wait := range []time.Duration{time.Hour, time.Millisecond} { // the engine's time ends first, or the caller's
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			v, _ := e.Decide(ctx, query1("/x/closed", 0))
			cancel()
			if v.Allowed {
				t.Error("it is allowed")
			}
			v.Release()
			if n := left(t, engine.New(us, e.Rules()), "/x", "here", 0); n != 5 {
				t.Errorf("%d left of 5 here", n)
			}
		}
	})
}

// A request that credit admits under a concurrency limit holds no slot. If a home then
// makes it refused, nobody else's slot is given back.
func TestCreditHoldsNoPlaceWhileAHomeIsCutOff(t *testing.T) {
	h := atHome(t)
	q := query1("/slots/closed", 0)
	q.Endless = false
	rule := h.Rules().Rule("api", "slots")
	slot := store.Op{Key: key("ann"), Scope: rule.StoreScope(), Rule: rule.Limit.Rule(), At: q.At, Cost: 9}
	grant := slot
	grant.Kind, grant.Cost, grant.Duration = store.KindGrant, 2, time.Hour
	for _, op := range []store.Op{slot, grant} {
		if d, err := store.Execute(t.Context(), h.us, op); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	h.eu.down = true
	for range 2 {
		v, err := h.Decide(t.Context(), q)
		if v.Allowed || err == nil {
			t.Errorf("%v, %v", v.Allowed, err)
		}
		v.Release()
	}
	slot.Kind, slot.Cost = store.KindPeek, 1
	if d, err := store.Execute(t.Context(), h.us, slot); err != nil || d.Allowed {
		t.Errorf("a slot is free, though nine requests have theirs: %+v, %v", d, err)
	}
}

// A rule that has been given another home counts what others use there: a reservation that
// was made before is settled where it was made, and gives nothing back that others took.
func TestAReservationOutlivesItsHome(t *testing.T) {
	const eu, own = `{name: moved, key: [user], rate: 5/day, algorithm: fixed_window, regions: {home: eu}}`, `{name: moved, key: [user], rate: 5/day, algorithm: fixed_window}`
	for name, rows := range map[string][2]string{"to this region": {eu, own}, "away": {own, eu}} {
		h := atHome(t)
		h.SetRules(parse(t, "domain: api\nlimits: ["+rows[0]+"]"))
		v, token, err := h.Reserve(t.Context(), query1("/x", 0), engine.DefaultReservation)
		if err != nil || !v.Allowed {
			t.Fatal(v.Allowed, err)
		}
		v.Release()
		h.SetRules(parse(t, "domain: api\nlimits: ["+rows[1]+"]"))
		for range 5 {
			v := decide(t, h.Engine, query1("/x", 0))
			v.Release()
		}
		if s, err := h.Cancel(t.Context(), token, at(1)); err != nil || s.Ending != engine.Done || len(s.Lost) != 1 {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if s, err := h.Cancel(t.Context(), token, at(1)); err != nil || s.Ending != engine.Settled {
			t.Errorf("%s, again: %+v, %v", name, s, err)
		}
		v = decide(t, h.Engine, query1("/x", 2))
		if v.Allowed {
			t.Errorf("%s: a sixth request of five passes", name)
		}
		v.Release()
	}
}
