// Package orders carries out what operators of other regions did to counts: grants and
// resets.
package orders

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/features"
	"github.com/headgate/headgate/store"
)

// ErrNoRule means that this region does not have the rule of an order.
var ErrNoRule = errors.New("this region does not have the rule")

// marked is how long an order is remembered at least, so that it is carried out once: for
// longer than it is tried.
const marked = time.Minute

// Carrier carries out orders.
type Carrier struct {
	Engine *engine.Engine
	Store  store.Store
	Clock  func() time.Time
}

// Carry carries out an order, in the same step as it notes that it did: so once, however
// often it is called. A grant of a limit that regions share was made in its own region,
// and moves like any other token. A failure of the store wraps headgate.ErrUnavailable.
func (c *Carrier) Carry(ctx context.Context, o *control.Order) error {
	tiers := c.tiers(o)
	if len(tiers) == 0 {
		return ErrNoRule
	}
	now := c.Clock()
	ruled := tiers[0].ForKey(o.Key)
	rule, _ := c.Engine.Applies(ruled, o.Key, now)
	op := store.Op{Key: o.Key, Scope: rule.StoreScope(), Rule: rule.Limit.Rule(), At: now.UnixMicro()}
	ops := []store.Op{{Key: o.Key, Scope: "%order:" + o.ID, Rule: once(o).Rule(), Cost: 1, At: op.At}}
	if o.Kind == control.Grant {
		if _, shared := rule.Limit.Rule().Regions(); shared || rule.Limit.Rule().Unlimited || o.Left <= 0 {
			return nil
		}
		op.Kind, op.Cost, op.Duration = store.KindGrant, o.Amount, o.Left
		ops = append(ops, op)
	} else {
		op.Kind = store.KindReset
		ops = append(append(ops, op), Others(tiers, ruled, o.Key, now)...)
	}
	// What another region counts for this one was changed there.
	ops = slices.DeleteFunc(ops, func(op store.Op) bool { return op.Rule.Home() != "" })
	return store.ExecuteAll(ctx, c.Store, ops, make([]store.Decision, len(ops)), store.AllOrNothing)
}

// tiers returns the rules that an order is about: the one that it names, and its other tiers.
func (c *Carrier) tiers(o *control.Order) []*rules.Rule {
	return c.Engine.Rules().OfLimit(o.Scope, o.Domain, o.Rule)
}

// once returns the limit that lets an order pass once, for as long as it could be read
// again.
func once(o *control.Order) headgate.Limit {
	lasts := max(o.Until.Sub(o.Created), 0) + marked
	return headgate.Per(1, min(lasts, store.MaxPeriod)).WithAlgorithm(headgate.FixedWindow).WithAnchor(headgate.AnchorFirstRequest)
}

// Others returns what resetting a key resets besides the counts of the limit that applies:
// those of other tiers, and what features have counted.
func Others(tiers []*rules.Rule, ruled *rules.Rule, key string, now time.Time) []store.Op {
	var ops []store.Op
	for _, r := range tiers {
		if r.CountsWith(ruled) {
			continue
		}
		ops = append(ops, store.Op{Key: key, Scope: r.StoreScope(), Rule: r.Limit.Rule(), At: now.UnixMicro(), Kind: store.KindReset})
	}
	return append(ops, features.Resets(ruled, key, now)...)
}
