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
)

// CostKnowledge is what a door knows, when a request has ended, of its cost
// under a rule with a CostAfter.
type CostKnowledge uint8

// The kinds of knowledge.
const (
	CostEstimated CostKnowledge = iota // the response came to its end and told nothing: the estimate stays
	CostKnown                          // it told the cost
	// CostAborted says that the response did not come to its end, so that
	// it is unknown: on_abort of the rule applies.
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
// an unknown cost is that of the rule's on_abort. at is now, in
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

// WithRecords says that the store may lose its data while this process continues, as
// a server elsewhere may. Then NoteCosts writes records.
func WithRecords() Option { return func(e *Engine) { e.records = true } }

// costRecords are those of what a request has taken under rules with a CostAfter.
// Such a record is stored next to the count, in the same slot, and lasts as long: if it
// is gone, what the count now holds may have been taken by others.
type costRecords struct {
	written chan struct{} // closed when they are, or could not be
	places  []int         // of the results that they belong to
	ops     []headgate.Op
	out     []headgate.Decision
	err     error
}

// NoteCosts writes to the store that SettleCosts, or Undo, will perhaps give back
// what v has taken of rules with a CostAfter, unless the store cannot lose it
// unnoticed; see [WithRecords]. The caller does not wait for it, nor does the
// decision. It has to come before Release, at most once.
func (e *Engine) NoteCosts(ctx context.Context, v *Verdict) {
	s := v.deciding
	if s == nil || !e.records || !v.HasCostAfter() {
		return
	}
	n := &costRecords{written: make(chan struct{})}
	for i := range s.results {
		r := &s.results[i]
		d := &r.Decision
		if r.Rule.CostAfter == nil || d.Granted == 0 || d.Lease != 0 || d.Reason == headgate.NoLimit || d.Reason == headgate.Fallback {
			continue
		}
		lasting := min(max(d.ResetAfter, time.Second), MaxReservation)
		n.places = append(n.places, i)
		n.ops = append(n.ops, headgate.Op{
			Key: strings.Clone(r.Key), Scope: e.recordName(), Cost: 1, At: v.at, Kind: headgate.Take,
			Limit: headgate.Concurrent(1).Lease(lasting.Truncate(time.Microsecond)),
		})
	}
	if len(n.ops) == 0 {
		return
	}
	s.costs, n.out = n, make([]headgate.Decision, len(n.ops))
	go func() {
		defer close(n.written)
		n.err = e.store.Do(context.WithoutCancel(ctx), n.ops, n.out, headgate.Independent)
	}()
}

// recordName is a scope that no other record has.
func (e *Engine) recordName() string {
	return "taken/" + strconv.FormatInt(e.home, 36) + "-" + strconv.FormatInt(e.noted.Add(1), 36)
}

// costs returns the records of v, once they are written, and that there are none
// any more.
func (v *Verdict) costs() *costRecords {
	n := v.deciding.costs
	if v.deciding.costs = nil; n != nil {
		<-n.written
	}
	return n
}

// of returns what ends the record of a result, and whether there is any; or false
// if it could not be written.
func (n *costRecords) of(result int, at int64) (end []headgate.Op, known bool) {
	if n == nil {
		return nil, true
	}
	for i, place := range n.places {
		switch {
		case place != result:
		case n.err != nil || n.out[i].Lease == 0:
			return nil, false
		default:
			return ending(n.ops[i], n.out[i].Lease, at), true
		}
	}
	return nil, true
}

// settled is what becomes of takes: what is charged, or given back as it is, and
// what is given back where the store knows it.
type settled struct {
	ops     []headgate.Op
	guarded [][]headgate.Op
}

// add adds an op about a take that end is the record of.
func (s *settled) add(op headgate.Op, end []headgate.Op, known bool) {
	switch {
	case op.Kind != headgate.Refund || known && end == nil:
		s.ops = append(s.ops, op)
		s.drop(end)
	case known:
		s.guarded = append(s.guarded, append(end, op))
	}
}

// drop ends a record that nothing depends on.
func (s *settled) drop(end []headgate.Op) {
	if len(end) > 0 {
		s.ops = append(s.ops, end[len(end)-1])
	}
}

// with asks store.
func (s *settled) with(ctx context.Context, store headgate.Store) error {
	err := settleWith(ctx, store, s.ops)
	for _, ops := range s.guarded {
		err = errors.Join(err, store.Do(ctx, ops, make([]headgate.Decision, len(ops)), headgate.AllOrNothing))
	}
	return err
}

// undoCosts gives back what v has taken that there are records of, and leaves
// nothing of it to be given back.
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
			of.add(op, end, known)
		} else {
			of.drop(end)
		}
		r.Decision.Granted = 0
	}
	return of
}
