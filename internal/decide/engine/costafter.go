package engine

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
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

func (l *largestCosts) of(scope string) *atomic.Int64 {
	most, ok := l.rules.Load(scope)
	if !ok {
		most, _ = l.rules.LoadOrStore(scope, new(atomic.Int64))
	}
	n, _ := most.(*atomic.Int64)
	return n
}

// note records a cost.
func (l *largestCosts) note(scope string, cost int64) {
	most := l.of(scope)
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
	var records *costRecords
	for i := range s.results {
		r := &s.results[i]
		if !r.unsettled() {
			continue
		}
		cost, known := costOf(r.Rule.CostAfter)
		if known == CostPending {
			continue
		}
		if s.costs != nil && records == nil {
			records = s.costs
			<-records.written
		}
		r.settled = true
		op, ok := e.settlement(r, cost, known, elapsed(v.at, at))
		end, noted := records.of(i, at)
		if !ok {
			of.drop(end)
			continue
		}
		if op.At = at; r.origin() == fromFallback {
			local.add(op, nil, true, r)
		} else {
			of.add(op, end, noted, r)
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
	return r.Rule.CostAfter != nil && !r.settled && r.Decision.Reason != headgate.NoLimit && r.Decision.Reason != headgate.Shadow
}

// settlement returns the op that corrects r to the known cost after some time. It
// returns false if there is nothing to correct.
func (e *Engine) settlement(r *Result, cost int64, known CostKnowledge, after time.Duration) (headgate.Op, bool) {
	switch known {
	case CostEstimated, CostPending:
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

// correction returns the op that changes what r took, some time ago, to the real cost;
// see [corrected].
func (r *Result) correction(cost int64, ago time.Duration) (headgate.Op, bool) {
	op := headgate.Op{Key: r.Key, Scope: r.Rule.StoreScope(), Limit: r.limit(), CountsUntil: r.Decision.CountsUntil, Member: r.member}
	return corrected(op, cost, r.Decision.Granted, r.Decision.ResetAfter, ago)
}

// corrected changes op to charge the part of cost above taken, into debt if need be, or
// to refund the part below. It returns false if there is nothing to do because time has
// already returned all of it. freshIn is how long the take counts, from the take on,
// and ago how long ago it was, both by this process; op.CountsUntil, by the store, or 0.
func corrected(op headgate.Op, cost, taken int64, freshIn, ago time.Duration) (headgate.Op, bool) {
	if op.Limit.Algorithm() == headgate.Distinct {
		cost = min(cost, taken) // a value costs 1 at most, and nothing if it was known
	}
	if cost > taken {
		op.Kind, op.Cost = headgate.Charge, cost-taken
		return op, true
	}
	op.Kind, op.Cost, op.Duration, op.Age = headgate.Refund, taken-cost, freshIn-ago, ago
	return op, op.Cost > 0 && op.Duration > 0
}

// WithRecords says that the store may lose its data while this process continues, as a
// remote server may. NoteCosts then writes records.
func WithRecords() Option { return func(e *Engine) { e.records = true } }

// costRecords are the records of what a request took under rules with a CostAfter. A
// record is stored next to the count, in the same slot, and lasts as long. If it is
// gone, what the count now holds may have been taken by other requests.
type costRecords struct {
	written chan struct{} // closed when they are written or failed to be
	places  []int         // the indexes of their results
	ops     []headgate.Op
	out     []headgate.Decision
	err     error
}

// NoteCosts writes records to the store for what v took under rules with a CostAfter,
// so that SettleCosts or Undo can refund it safely later. It does nothing if the store
// cannot lose data unnoticed; see [WithRecords]. Neither the caller nor the decision
// waits for it. Call it before Release, at most once.
func (e *Engine) NoteCosts(ctx context.Context, v *Verdict) {
	s := v.deciding
	if s == nil || !e.records {
		return
	}
	var n *costRecords
	for i := range s.results {
		r := &s.results[i]
		d := &r.Decision
		if !v.Allowed && r.Rule.ChargeOn() == nil || !r.unsettled() || d.Granted == 0 || d.Lease != 0 || d.Reason == headgate.Fallback {
			continue
		}
		if n == nil {
			n = &costRecords{written: make(chan struct{})}
		}
		lasting := min(max(d.ResetAfter, time.Second), MaxReservation)
		n.places = append(n.places, i)
		n.ops = append(n.ops, headgate.Op{
			Key: strings.Clone(r.Key), Scope: e.recordName(), Cost: 1, At: v.at, Kind: headgate.Take,
			Limit: place{home: r.Rule.Limit.Rule().Home()}.in(headgate.Concurrent(1).Lease(lasting.Truncate(time.Microsecond))),
		})
	}
	if n == nil {
		return
	}
	s.costs, n.out = n, make([]headgate.Decision, len(n.ops))
	go func() {
		defer close(n.written)
		n.err = e.store.Do(context.WithoutCancel(ctx), n.ops, n.out, headgate.Independent)
	}()
}

// recordName returns a scope that no other record has.
func (e *Engine) recordName() string {
	return "taken/" + strconv.FormatInt(e.home, 36) + "-" + strconv.FormatInt(e.noted.Add(1), 36)
}

// costs waits for the records of v to be written, and returns and removes them.
func (v *Verdict) costs() *costRecords {
	n := v.deciding.costs
	if v.deciding.costs = nil; n != nil {
		<-n.written
	}
	return n
}

// of returns the ops that end the record of a result, if it has one; false means that it
// could not be written.
func (n *costRecords) of(result int, at int64) (end []headgate.Op, known bool) {
	if n == nil {
		return nil, true
	}
	for i, place := range n.places {
		switch {
		case place != result:
		case store.Failed(n.err, i) || n.out[i].Lease == 0:
			return nil, false
		default:
			return ending(n.ops[i], n.out[i].Lease, at), true
		}
	}
	return nil, true
}

// settled collects the ops that settle what was taken: charges and unconditional refunds, and
// refunds that depend on a record in the store.
type settled struct {
	ops     []headgate.Op
	owners  []*Result // for each of ops, whose take it corrects; nil if it ends a record
	guarded []guarded
}

// guarded are the ops that end the record of a take and refund it, both or none.
type guarded struct {
	ops   []headgate.Op
	owner *Result
}

// add adds an op about the take of r, whose record end ends.
func (s *settled) add(op headgate.Op, end []headgate.Op, known bool, r *Result) {
	switch {
	case op.Kind != headgate.Refund || known && end == nil:
		s.ops, s.owners = append(s.ops, op), append(s.owners, r)
		s.drop(end)
	case known:
		s.guarded = append(s.guarded, guarded{append(end, op), r})
	}
}

// drop ends a record that is not needed.
func (s *settled) drop(end []headgate.Op) {
	if len(end) > 0 {
		s.ops, s.owners = append(s.ops, end[len(end)-1]), append(s.owners, nil)
	}
}

// with sends the ops to a store.
func (s *settled) with(ctx context.Context, e *Engine, in headgate.Store) error {
	var err error
	if len(s.ops) > 0 {
		out := make([]headgate.Decision, len(s.ops))
		err = in.Do(ctx, s.ops, out, headgate.Independent)
		for i, r := range s.owners {
			if !store.Failed(err, i) {
				e.refunded(r, s.ops[i].Kind, &out[i])
			}
		}
	}
	for _, g := range s.guarded {
		out := make([]headgate.Decision, len(g.ops))
		one := in.Do(ctx, g.ops, out, headgate.AllOrNothing)
		if err = errors.Join(err, one); one == nil && allAllowed(out) {
			e.refunded(g.owner, headgate.Refund, &out[len(out)-1])
		}
	}
	return err
}

// refunded notes the answer to a refund for r: what remains, and that an answer did not
// count.
func (e *Engine) refunded(r *Result, kind headgate.Kind, answer *headgate.Decision) {
	if r == nil || kind != headgate.Refund {
		return
	}
	r.Decision.Remaining, r.Decision.ResetAfter = max(answer.Remaining, 0), answer.ResetAfter
	if r.Rule.ChargeOn() != nil {
		e.tellGivenBack(r.Rule)
	}
}

// undoCosts refunds what v took as far as there are records, and marks it as refunded.
func (d *deciding) undoCosts(v *Verdict, at int64) *settled {
	n, of := v.costs(), new(settled)
	if n == nil {
		return of
	}
	for _, i := range n.places {
		r := &d.results[i]
		end, known := n.of(i, at)
		if op, ok := r.correction(0, elapsed(v.at, at)); ok {
			op.At = at
			of.add(op, end, known, r)
		} else {
			of.drop(end)
		}
		r.Decision.Granted = 0
	}
	return of
}
