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
	s := v.deciding
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
		if op.At = at; r.origin() == fromFallback {
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
	switch known {
	case CostEstimated:
		return headgate.Op{}, false
	case CostKnown:
		e.largest.note(r.Rule.Scope, cost)
	case CostAborted:
		cost = r.Rule.CostAfter.OnAbort(r.Decision.Granted, e.largest.of(r.Rule.Scope).Load())
	}
	op, ok := r.correction(cost, after)
	r.Decision.Granted = cost
	return op, ok
}

// correction is the op that turns what r has taken, some time ago, into what it has
// cost; see [corrected].
func (r *Result) correction(cost int64, ago time.Duration) (headgate.Op, bool) {
	op := headgate.Op{Key: r.Key, Scope: r.Rule.Scope, Limit: r.limit()}
	return corrected(op, cost, r.Decision.Granted, r.Decision.ResetAfter, ago)
}

// corrected is op to charge, into debt if need be, what a cost is more than what was
// taken, or to give back what it is less; and false if there is nothing to do, as time
// has given all of it back. freshIn is when what was taken no longer counted, from the
// take on, and ago how long that is.
func corrected(op headgate.Op, cost, taken int64, freshIn, ago time.Duration) (headgate.Op, bool) {
	if cost > taken {
		op.Kind, op.Cost = headgate.Charge, cost-taken
		return op, true
	}
	op.Kind, op.Cost, op.Duration, op.Age = headgate.Refund, taken-cost, freshIn-ago, ago
	return op, op.Cost > 0 && op.Duration > 0
}

func settleWith(ctx context.Context, store headgate.Store, ops []headgate.Op) error {
	if len(ops) == 0 {
		return nil
	}
	return store.Do(ctx, ops, make([]headgate.Decision, len(ops)), headgate.Independent)
}
