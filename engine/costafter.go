package engine

import (
	"context"
	"errors"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/rules"
)

// HasCostAfter reports whether the response will tell what the request of v has
// taken under a rule that has charged it with an estimate.
func (v *Verdict) HasCostAfter() bool {
	results := v.Results()
	for i := range results {
		if results[i].Rule.CostAfter != nil && v.Allowed {
			return true
		}
	}
	return false
}

// SettleCosts charges the difference between what v has taken and what costOf
// says of each rule with a CostAfter, into debt if need be, or gives it back. It
// leaves those alone of which costOf reports false. at is now, in microseconds
// since the Unix epoch. It must come before Release; a second call does nothing.
func (e *Engine) SettleCosts(ctx context.Context, v *Verdict, at int64, costOf func(*rules.CostAfter) (int64, bool)) error {
	s := v.scratch
	if s == nil {
		return nil
	}
	var ops, local []headgate.Op
	for i := range s.results {
		r := &s.results[i]
		d := &r.Decision
		if r.Rule.CostAfter == nil || d.Reason == headgate.NoLimit || d.Reason == headgate.Shadow {
			continue
		}
		cost, known := costOf(r.Rule.CostAfter)
		op := headgate.Op{Key: r.Key, Scope: r.Rule.Scope, Limit: r.Rule.Limit, At: at}
		switch granted := d.Granted; {
		case !known || cost == granted:
			continue
		case cost > granted:
			op.Kind, op.Cost = headgate.Charge, cost-granted
		default:
			op.Kind, op.Cost, op.Duration = headgate.Refund, granted-cost, d.ResetAfter-elapsed(v.at, at)
			if op.Duration <= 0 {
				continue // time has given it all back
			}
		}
		d.Granted = cost
		if d.Reason == headgate.Fallback && e.fallback != nil {
			op.Limit = localLimit(r.Rule)
			local = append(local, op)
		} else {
			ops = append(ops, op)
		}
	}
	err := settleWith(ctx, e.store, ops)
	if e.fallback != nil {
		err = errors.Join(err, settleWith(ctx, e.fallback, local))
	}
	if err != nil {
		return unavailable(err)
	}
	return nil
}

func settleWith(ctx context.Context, store headgate.Store, ops []headgate.Op) error {
	if len(ops) == 0 {
		return nil
	}
	return store.Do(ctx, ops, make([]headgate.Decision, len(ops)), headgate.Independent)
}
