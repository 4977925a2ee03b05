package engine

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// WithRecords says that the store may lose its data while this process goes on, as
// a server elsewhere may. Then NoteCosts writes records.
func WithRecords() Option { return func(e *Engine) { e.records = true } }

// costRecords are those of what a request has taken under rules with a CostAfter.
// Such a record lies beside the count, in the same slot and as durable: where it is
// no more, the count may be another's.
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
