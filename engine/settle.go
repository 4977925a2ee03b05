package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/rules"
)

// settling is a reservation on its way to be settled.
type settling struct {
	*reservation
	engine   *Engine
	at, cost int64
	out      Settlement

	// ops are the differences: of the store and of this process's memory.
	ops, local []headgate.Op
}

// plan works out what to charge and what to give back.
func (s *settling) plan() {
	rs, x := s.engine.Rules(), s.engine.exceptions.Load()
	for i := range s.parts {
		p := &s.parts[i]
		rule := rs.Rule(p.domain, p.rule)
		if rule == nil || rule.Limit.Algorithm() != p.algorithm {
			s.out.Lost = append(s.out.Lost, p.rule)
			continue
		}
		if rule.Limit.IsUnlimited() {
			continue
		}
		_, rule = x.of(rule, p.key, x.orNow(s.at))
		if op, ok := s.difference(p, rule); ok && p.local {
			s.local = append(s.local, op)
		} else if ok {
			s.ops = append(s.ops, op)
		}
	}
}

// difference is the op that turns what p has taken into what the request cost.
func (s *settling) difference(p *reserved, rule *rules.Rule) (headgate.Op, bool) {
	op := headgate.Op{Key: p.key, Scope: rule.Scope, Limit: rule.Limit, At: s.at}
	if p.local {
		op.Limit = localLimit(rule)
	}
	switch actual := times(s.cost, p.each); {
	case actual > p.granted:
		op.Kind, op.Cost = headgate.Take, actual-p.granted
	case actual < p.granted:
		op.Kind, op.Cost = headgate.Refund, p.granted-actual
		op.Duration = p.freshIn - elapsed(s.made, s.at)
		return op, op.Duration > 0 // else time has given it all back
	default:
		return op, false
	}
	return op, true
}

// settle passes the gate and makes the differences, at once if the store can.
func (s *settling) settle(ctx context.Context) (Settlement, error) {
	gate := s.gate()
	if len(s.ops) > 0 {
		ops := append(slices.Clip(gate), s.ops...)
		out := make([]headgate.Decision, len(ops))
		switch err := s.engine.store.Do(ctx, ops, out, headgate.AllOrNothing); {
		case errors.Is(err, headgate.ErrCrossSlot):
			// One after the other, then.
		case err != nil:
			return s.out, unavailable(err)
		case allAllowed(out):
			return s.finish(ctx, gate, out)
		case isClosed(out[:len(gate)]):
			return s.closed(), nil
		}
	}
	// What does not fit becomes a debt.
	out := make([]headgate.Decision, len(gate))
	if err := s.engine.store.Do(ctx, gate, out, headgate.AllOrNothing); err != nil {
		return s.out, unavailable(err)
	}
	if isClosed(out) {
		return s.closed(), nil
	}
	for i := range s.ops {
		if s.ops[i].Kind == headgate.Take {
			s.ops[i].Kind = headgate.Charge
		}
	}
	if err := s.make(ctx, s.engine.store, s.ops); err != nil {
		return s.out, unavailable(err)
	}
	return s.finish(ctx, gate, out)
}

// isClosed reports whether the gate is what has refused: another op may have, and
// then the answer to a renewal is that of a Peek.
func isClosed(gate []headgate.Decision) bool {
	return !gate[0].Allowed || len(gate) > 1 && gate[1].Reason == headgate.Expired
}

// closed is the settlement of a reservation that does not pass the gate.
func (s *settling) closed() Settlement {
	s.out.Ending = Settled
	if s.at >= s.until {
		s.out.Ending = Expired
	}
	return s.out
}

// make makes ops, each by itself.
func (s *settling) make(ctx context.Context, store headgate.Store, ops []headgate.Op) error {
	if len(ops) == 0 {
		return nil
	}
	out := make([]headgate.Decision, len(ops))
	if err := store.Do(ctx, ops, out, headgate.Independent); err != nil {
		return err
	}
	s.out.InDebt = s.out.InDebt || !allAllowed(out)
	return nil
}

// finish settles with this process's memory, which never fails, and forgets what
// the gate has written.
func (s *settling) finish(ctx context.Context, gate []headgate.Op, passed []headgate.Decision) (Settlement, error) {
	s.forget(ctx, gate, passed)
	if s.engine.fallback != nil {
		for i := range s.local {
			if s.local[i].Kind == headgate.Take {
				s.local[i].Kind = headgate.Charge
			}
		}
		_ = s.make(ctx, s.engine.fallback, s.local)
	}
	return s.out, nil
}

// gate are the ops that only the first settlement passes. One takes what can be
// taken once. The other renews the record of the reservation, which is there until
// it is settled, unless the store has lost its data: with the record it has lost
// what was taken, and what is given back then would be another's.
func (s *settling) gate() []headgate.Op {
	period := time.Duration(s.until-s.made)*time.Microsecond + settledSlack
	ops := []headgate.Op{{
		Key: s.place(), Scope: "reservation/" + s.id, Cost: 1, At: s.at, Kind: headgate.Take,
		Limit: headgate.Per(1, period).Using(headgate.FixedWindow).Anchored(headgate.AnchorFirstRequest),
	}}
	if s.record != 0 {
		op := s.open(s.at)
		op.Kind, op.Lease = headgate.Renew, s.record
		ops = append(ops, op)
	}
	return ops
}

// forget takes back what the gate has written: without the record nobody passes it
// again. Where that fails it ends by itself, in the time that the token was good
// for.
func (s *settling) forget(ctx context.Context, gate []headgate.Op, passed []headgate.Decision) {
	if s.record == 0 {
		return
	}
	ops := []headgate.Op{gate[1], gate[0]} // in this order
	ops[0].Kind, ops[0].Lease = headgate.Release, passed[1].Lease
	ops[1].Kind = headgate.Reset
	_ = s.engine.store.Do(ctx, ops, make([]headgate.Decision, len(ops)), headgate.Independent)
}

func allAllowed(out []headgate.Decision) bool {
	for i := range out {
		if !out[i].Allowed {
			return false
		}
	}
	return true
}
