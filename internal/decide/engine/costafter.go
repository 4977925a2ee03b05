package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

// CostKnowledge is what a door knows, when a request has ended, of its cost
// under a rule with a CostAfter.
type CostKnowledge uint8

const (
	// CostEstimated says that the response came to its end and told nothing:
	// the estimate stays.
	CostEstimated CostKnowledge = iota
	// CostKnown says that it told the cost.
	CostKnown
	// CostAborted says that the response did not come to its end, so that
	// nobody knows: the rule says what that costs.
	CostAborted
)

// largestCosts are the most that a request has cost so far, by scope of rule.
type largestCosts struct {
	rules sync.Map // of *atomic.Int64
}

func (l *largestCosts) of(scope string) *atomic.Int64 {
	most, ok := l.rules.Load(scope)
	if !ok {
		most, _ = l.rules.LoadOrStore(scope, new(atomic.Int64))
	}
	n, _ := most.(*atomic.Int64)
	return n
}

// note takes a cost into account.
func (l *largestCosts) note(scope string, cost int64) {
	most := l.of(scope)
	for {
		was := most.Load()
		if cost <= was || most.CompareAndSwap(was, cost) {
			return
		}
	}
}

// keep forgets rules that are not in rs.
func (l *largestCosts) keep(rs *rules.Ruleset) {
	in := map[string]bool{}
	for _, r := range rs.Rules() {
		if r.CostAfter != nil {
			in[r.Scope] = true
		}
	}
	l.rules.Range(func(scope, _ any) bool {
		if name, _ := scope.(string); !in[name] {
			l.rules.Delete(scope)
		}
		return true
	})
}

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
// says of each rule with a CostAfter, into debt if need be, or gives it back;
// what nobody knows costs what the rule's on_abort says. at is now, in
// microseconds since the Unix epoch. It must come before Release; a second call
// does nothing.
func (e *Engine) SettleCosts(
	ctx context.Context, v *Verdict, at int64, costOf func(*rules.CostAfter) (int64, CostKnowledge),
) error {
	s := v.scratch
	if s == nil {
		return nil
	}
	var local []headgate.Op
	var of settled
	records := v.costs()
	for i := range s.results {
		r := &s.results[i]
		if r.Rule.CostAfter == nil || r.Decision.Reason == headgate.NoLimit || r.Decision.Reason == headgate.Shadow {
			continue
		}
		cost, known := costOf(r.Rule.CostAfter)
		op, ok := e.settlement(r, cost, known, elapsed(v.at, at))
		end, noted := records.of(i, at)
		if !ok {
			of.drop(end)
			continue
		}
		if op.At = at; r.Decision.Reason == headgate.Fallback && e.fallback != nil {
			op.Limit = localLimit(r.Rule)
			local = append(local, op)
		} else {
			of.add(op, end, noted)
		}
	}
	err := of.with(ctx, e.store)
	if e.fallback != nil {
		err = errors.Join(err, settleWith(ctx, e.fallback, local))
	}
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// settlement returns what to ask the store for so that r has cost what is known
// of it, after some time, and false if there is nothing to ask for.
func (e *Engine) settlement(r *Result, cost int64, known CostKnowledge, after time.Duration) (headgate.Op, bool) {
	d, granted := &r.Decision, r.Decision.Granted
	op := headgate.Op{Key: r.Key, Scope: r.Rule.Scope, Limit: r.Rule.Limit}
	switch known {
	case CostEstimated:
		return op, false
	case CostKnown:
		e.largest.note(r.Rule.Scope, cost)
	case CostAborted:
		cost = r.Rule.CostAfter.OnAbort(granted, e.largest.of(r.Rule.Scope).Load())
	}
	if d.Granted = cost; cost > granted {
		op.Kind, op.Cost = headgate.Charge, cost-granted
		return op, true
	}
	op.Kind, op.Cost, op.Duration, op.Age = headgate.Refund, granted-cost, d.ResetAfter-after, after
	return op, op.Cost > 0 && op.Duration > 0 // else time has given it all back
}

func settleWith(ctx context.Context, store headgate.Store, ops []headgate.Op) error {
	if len(ops) == 0 {
		return nil
	}
	return store.Do(ctx, ops, make([]headgate.Decision, len(ops)), headgate.Independent)
}
