package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/soft"
	"github.com/headgate/headgate/store"
)

// CostKnowledge is what a door knows, after a request, about its cost under a rule with
// a CostAfter.
type CostKnowledge uint8

// The values of CostKnowledge.
const (
	CostEstimated CostKnowledge = iota // the response ended without giving a cost: the estimate stays
	CostKnown                          // the response gave the cost
	// CostAborted means that the response did not end normally, so the cost is unknown:
	// the rule's on_abort applies.
	CostAborted
	CostPending // the rest of the response may give the cost: a later call settles it
)

// largestCosts holds the highest cost of a request so far, by scope of rule.
type largestCosts struct {
	rules sync.Map // values are *atomic.Int64
}

func (l *largestCosts) highest(scope string) *atomic.Int64 {
	most, ok := l.rules.Load(scope)
	if !ok {
		most, _ = l.rules.LoadOrStore(scope, new(atomic.Int64))
	}
	n, _ := most.(*atomic.Int64)
	return n
}

// record records a cost.
func (l *largestCosts) record(scope string, cost int64) {
	most := l.highest(scope)
	for {
		was := most.Load()
		if cost <= was || most.CompareAndSwap(was, cost) {
			return
		}
	}
}

// keep removes rules that are not in rs.
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

// HasCostAfter reports whether the response will show the cost of a request that a rule
// has charged with an estimate.
func (v *Verdict) HasCostAfter() bool {
	results := v.Results()
	for i := range results {
		if results[i].Rule.CostAfter != nil && v.Allowed {
			return true
		}
	}
	return false
}

// SettleCosts charges or refunds, for each rule with a CostAfter, the difference
// between what v has taken and what costOf returns. A charge may lead to debt. For an
// unknown cost, the rule's on_abort applies. at is now, in microseconds since the Unix
// epoch. Call it before Release. Each rule is settled once: a further call settles
// those whose cost was CostPending. After a refund, Results have what remains now.
func (e *Engine) SettleCosts(
	ctx context.Context, v *Verdict, at int64, costOf func(*rules.CostAfter) (int64, CostKnowledge),
) error {
	s := v.deciding
	if s == nil {
		return nil
	}
	var of, local settled
	for i := range s.results {
		r := &s.results[i]
		if !r.unsettled() {
			continue
		}
		cost, known := costOf(r.Rule.CostAfter)
		if known == CostPending {
			continue
		}
		r.settled = true
		op, ok := e.settlement(r, cost, known, elapsed(v.at, at))
		if !ok {
			continue
		}
		if op.At = at; r.origin() == fromFallback {
			local.add(op, r)
		} else {
			of.add(op, r)
		}
	}
	err := of.with(ctx, e, e.store)
	if e.fallback != nil {
		err = errors.Join(err, local.with(ctx, e, e.fallback))
	}
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// unsettled reports whether the response of the request has yet to settle r.
func (r *Result) unsettled() bool {
	return r.Rule.CostAfter != nil && !r.settled && r.Decision.Reason != headgate.ReasonNoLimit && r.Decision.Reason != store.ReasonShadow
}

// settlement returns the op that corrects r to the known cost after some time. It
// returns false if there is nothing to correct.
func (e *Engine) settlement(r *Result, cost int64, known CostKnowledge, after time.Duration) (store.Op, bool) {
	switch known {
	case CostEstimated, CostPending:
		return store.Op{}, false
	case CostKnown:
		e.largest.record(r.Rule.Scope, cost)
	case CostAborted:
		cost = r.Rule.CostAfter.OnAbort(r.Decision.Granted, e.largest.highest(r.Rule.Scope).Load())
	}
	op, ok := r.correction(cost, after)
	if r.passes() && op.Kind == store.KindCharge {
		op.Kind = store.KindTakeUpTo // the debt ends where that of requests does
		op.Rule = soft.Widened(r.limit().Rule())
	}
	r.Decision.Granted = cost
	return op, ok
}

// correction returns the op that changes what r took, some time ago, to the real cost;
// see [corrected].
func (r *Result) correction(cost int64, ago time.Duration) (store.Op, bool) {
	op := store.Op{Key: r.Key, Scope: r.Rule.StoreScope(), Rule: r.limit().Rule(), CountsUntil: r.Decision.CountsUntil, Member: r.member, Share: r.Rule.FairOf(r.share)}
	return corrected(op, cost, r.Decision.Granted, r.Decision.ResetAfter, ago)
}

// corrected changes op to charge the part of cost above taken, into debt if need be, or
// to refund the part below. It returns false if there is nothing to do because time has
// already returned all of it. freshIn is how long the take counts, from the take on,
// and ago how long ago it was, both by this process; op.CountsUntil, by the store, or 0.
func corrected(op store.Op, cost, taken int64, freshIn, ago time.Duration) (store.Op, bool) {
	if op.Rule.Algorithm == headgate.Distinct {
		cost = min(cost, taken) // a value costs 1 at most, and nothing if it was known
	}
	if cost > taken {
		op.Kind, op.Cost = store.KindCharge, cost-taken
		return op, true
	}
	op.Kind, op.Cost, op.Duration = store.KindRefund, taken-cost, freshIn-ago
	return op, op.Cost > 0 && op.Duration > 0
}

// settled collects the ops that settle what was taken.
type settled struct {
	ops    []store.Op
	owners []*Result // for each of ops, whose take it corrects
}

func (s *settled) add(op store.Op, r *Result) {
	s.ops, s.owners = append(s.ops, op), append(s.owners, r)
}

// with sends the ops to a store.
func (s *settled) with(ctx context.Context, e *Engine, in store.Store) error {
	if len(s.ops) == 0 {
		return nil
	}
	out := make([]store.Decision, len(s.ops))
	err := store.ExecuteAll(ctx, in, s.ops, out, store.Independent)
	for i, r := range s.owners {
		if store.Failed(err, i) || s.ops[i].Kind != store.KindRefund {
			continue
		}
		r.Decision.Remaining, r.Decision.ResetAfter = max(out[i].Remaining, 0), out[i].ResetAfter
		if r.Rule.ChargeOn() != nil { // the answer did not count
			e.refunded(r.Rule)
		}
	}
	return err
}
