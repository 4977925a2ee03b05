package orders_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/decide/orders"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const text = `
domain: api
limits:
  - {name: own, key: [user], rate: 5/day, algorithm: fixed_window}
  - {name: log, key: [user], rate: 5/day, algorithm: sliding_log}
  - {name: all, key: ["header:X-T"], rate: 5/day, algorithm: fixed_window, regions: shared}
  - {name: free, key: [user], rate: unlimited}
  - {name: away, key: [user], rate: 5/day, algorithm: sliding_log, regions: {home: ap}}
`

type place struct {
	*testing.T
	orders.Carrier
	now   time.Time
	store *memory.Store
}

func newPlace(t *testing.T) *place {
	t.Helper()
	rs, bad := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(text)})
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	p := &place{T: t, now: time.Date(2026, 11, 24, 2, 0, 0, 0, time.UTC)}
	p.store = memory.New()
	t.Cleanup(func() { _ = p.store.Close() })
	p.Carrier = orders.Carrier{Engine: engine.New(p.store, rs), Store: p.store, Clock: func() time.Time { return p.now }}
	return p
}

func (p *place) op(rule string, kind store.Kind, cost int64) store.Decision {
	p.Helper()
	r := p.Engine.Rules().Rule("api", rule)
	d, err := store.Execute(context.Background(), p.store, store.Op{Key: "k", Scope: r.StoreScope(), Rule: r.Limit.Rule(), At: p.now.UnixMicro(), Kind: kind, Cost: cost})
	if err != nil {
		p.Fatal(err)
	}
	return d
}

func (p *place) left(rule string) int64 { return p.op(rule, store.KindPeek, 1).Remaining }

func (p *place) order(rule string, kind control.Kind, id string) *control.Order {
	scope := "api/" + rule
	if r := p.Engine.Rules().Rule("api", rule); r != nil {
		scope = r.Scope
	}
	e := &control.Entry{Kind: kind, Domain: "api", Rule: rule, Scope: scope, Key: "k", Created: p.now, Until: p.now.Add(time.Hour)}
	if kind == control.Grant {
		e.Amount = 3
	}
	return &control.Order{Entry: e, ID: id, Left: time.Hour}
}

func (p *place) carry(o *control.Order) {
	p.Helper()
	if err := p.Carry(context.Background(), o); err != nil {
		p.Error(err)
	}
}

// However often an order is carried out, it has an effect once; another order has another.
func TestOnce(t *testing.T) {
	for _, rule := range []string{"own", "log"} {
		p := newPlace(t)
		p.op(rule, store.KindTake, 4)
		p.carry(p.order(rule, control.Grant, "eu:one"))
		p.carry(p.order(rule, control.Grant, "eu:one"))
		if n := p.left(rule); n != 4 {
			t.Errorf("%s: %d left after a grant of 3, want 4", rule, n)
		}
		p.carry(p.order(rule, control.Grant, "us:one"))
		if n := p.left(rule); n != 7 {
			t.Errorf("%s: %d left after two grants, want 7", rule, n)
		}
		p.carry(p.order(rule, control.Reset, "eu:5"))
		p.op(rule, store.KindTake, 2)
		p.carry(p.order(rule, control.Reset, "eu:5"))
		if n := p.left(rule); n != 3 {
			t.Errorf("%s: %d left after a reset that was read twice, want 3", rule, n)
		}
		p.carry(p.order(rule, control.Reset, "eu:6"))
		if n := p.left(rule); n != 5 {
			t.Errorf("%s: %d left after another reset, want 5", rule, n)
		}
	}
}

// A grant of a shared limit is made where it was ordered; one that is over, or of a key
// without a limit, is none.
func TestNothingToGrant(t *testing.T) {
	p := newPlace(t)
	p.carry(p.order("all", control.Grant, "eu:one"))
	p.carry(p.order("free", control.Grant, "eu:two"))
	over := p.order("own", control.Grant, "eu:three")
	over.Left = 0
	p.carry(over)
	if all, own := p.left("all"), p.left("own"); all != 5 || own != 5 {
		t.Errorf("%d and %d left, want 5", all, own)
	}
	p.op("all", store.KindTake, 2)
	p.carry(p.order("all", control.Reset, "eu:four"))
	if n := p.left("all"); n != 5 {
		t.Errorf("%d left after a reset, want 5", n)
	}
	if err := p.Carry(context.Background(), p.order("gone", control.Reset, "eu:five")); !errors.Is(err, orders.ErrNoRule) {
		t.Errorf("a rule that is not here: %v", err)
	}
}

// What another region counts was granted and reset there: an order about it leaves the
// counts alone, and is not tried again.
func TestALimitWithAHome(t *testing.T) {
	p := newPlace(t)
	p.op("away", store.KindTake, 2)
	for _, kind := range []control.Kind{control.Grant, control.Reset} {
		if p.carry(p.order("away", kind, "eu:one")); p.left("away") != 3 {
			t.Errorf("%d left after a %s in eu, want 3", p.left("away"), kind)
		}
	}
}

// If the store fails, the order is to be carried out again, and then it is.
func TestStoreFails(t *testing.T) {
	p := newPlace(t)
	p.op("own", store.KindTake, 4)
	good := p.Store
	p.Store = failing{good}
	if err := p.Carry(context.Background(), p.order("own", control.Grant, "eu:one")); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	p.Store = good
	p.carry(p.order("own", control.Grant, "eu:one"))
	if n := p.left("own"); n != 4 {
		t.Errorf("%d left, want 4", n)
	}
}

type failing struct{ store.Store }

func (failing) Do(_ context.Context, b *store.Batch) {
	b.Each(func([]store.Op, []store.Decision, store.Mode) error {
		return headgate.ErrUnavailable
	})
}
