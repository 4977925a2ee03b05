package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/rules"
)

// In what time a reservation has to be settled.
const (
	// DefaultReservation is that of one that does not say.
	DefaultReservation = 10 * time.Minute
	// MaxReservation is the longest.
	MaxReservation = 24 * time.Hour
)

// settledSlack is how much longer a settled reservation is remembered than it
// could be settled, for nodes whose clocks differ.
const settledSlack = 5 * time.Minute

// Settlement is what became of a reservation.
type Settlement struct {
	// Ending is Done, Settled or Expired.
	Ending Ending
	// InDebt says that the real cost did not fit: later requests wait it out.
	InDebt bool
	// Lost are the names of rules that are no more, or count otherwise than
	// before. What they had taken stays as it was.
	Lost []string
}

// reserved is what a reservation has taken under one rule.
type reserved struct {
	domain, rule, key string
	algorithm         headgate.Algorithm
	each              int64 // what a request of cost 1 takes
	granted           int64
	freshIn           time.Duration // when that no longer counted, from then on
	local             bool
}

// reservation is what a token of that kind holds.
type reservation struct {
	id          string
	made, until int64
	cost        int64
	parts       []reserved
	leases      []byte // as appendLeases has them
}

// Reserve is Decide for a request whose cost is known only afterwards: q.Cost is
// an estimate. With the token, which is empty for a refusal, Commit or Cancel
// settles it within ttl, on this or another node. If nobody does, what was
// estimated stays taken. q.At has to be given.
func (e *Engine) Reserve(ctx context.Context, q Query, ttl time.Duration) (v Verdict, token string, err error) {
	v, err = e.Decide(ctx, q)
	if !v.Allowed || q.Kind != headgate.Take {
		return v, "", err
	}
	ttl = min(max(ttl, time.Millisecond), MaxReservation)
	r := reservation{id: rand.Text(), made: q.At, until: q.At + ttl.Microseconds(), cost: q.Cost}
	checks := v.scratch.matches[0].Checks
	results := v.Results()
	for i := range results {
		d := &results[i].Decision
		rule := results[i].Rule
		if d.Reason == headgate.NoLimit || d.Reason == headgate.Shadow || rule.Concurrent() || i >= len(checks) {
			continue // a place is no cost, and is among the leases if it was not granted besides
		}
		r.parts = append(r.parts, reserved{
			domain: rule.Domain, rule: rule.Name, key: results[i].Key, algorithm: rule.Limit.Algorithm(), each: checks[i].Cost,
			granted: d.Granted, freshIn: d.ResetAfter, local: d.Reason == headgate.Fallback,
		})
	}
	r.leases = appendLeases(nil, v.Leases(nil))
	token, sealErr := e.seal.close(ctx, reservationToken, r.append(nil))
	return v, token, errors.Join(err, sealErr)
}

// Commit settles a reservation at what the request has really cost: it charges
// the difference, into debt if need be, or gives it back, less what time has
// given back already. However often and wherever it is called, it counts at most
// once. at is now, in microseconds since the Unix epoch, and must be given. The
// error is ErrBadToken, headgate.ErrInvalidCost, or wraps
// headgate.ErrUnavailable.
//
// A call that failed so may be made again. It is then done, or was done by the
// call whose answer was lost, which Settled says as well. There is one
// exception: a difference that does not fit, or keys in several slots of a Redis
// Cluster, take two steps. If the store fails between them, the estimate stays
// charged, the difference is lost, and whoever tries again is told Settled:
// rather that than to charge twice.
func (e *Engine) Commit(ctx context.Context, token string, cost, at int64) (Settlement, error) {
	if cost < 0 {
		return Settlement{}, headgate.ErrInvalidCost
	}
	return e.settleReservation(ctx, token, cost, at)
}

// Cancel settles a reservation for a request that was not made: all that it took
// is given back; see [Engine.Commit].
func (e *Engine) Cancel(ctx context.Context, token string, at int64) (Settlement, error) {
	return e.settleReservation(ctx, token, 0, at)
}

func (e *Engine) settleReservation(ctx context.Context, token string, cost, at int64) (Settlement, error) {
	plain, err := e.seal.open(ctx, reservationToken, token)
	if err != nil {
		return Settlement{}, err
	}
	r, ok := readReservation(plain)
	if !ok {
		return Settlement{}, ErrBadToken
	}
	if at >= r.until {
		return Settlement{Ending: Expired}, nil
	}
	s := settling{engine: e, reservation: r, at: at, cost: cost}
	s.plan()
	out, err := s.settle(ctx)
	if err == nil && out.Ending == Done {
		reader := &tokenReader{in: r.leases}
		_, err = e.ReleaseLeases(ctx, e.leases(reader, at), at)
	}
	return out, err
}

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

// settle marks the reservation as settled and makes the differences, at once if
// the store can. The mark is a limit of one in the time that a token is good,
// for the reservation's own name.
func (s *settling) settle(ctx context.Context) (Settlement, error) {
	mark := s.mark()
	if len(s.ops) > 0 {
		ops := append([]headgate.Op{mark}, s.ops...)
		out := make([]headgate.Decision, len(ops))
		switch err := s.engine.store.Do(ctx, ops, out, headgate.AllOrNothing); {
		case errors.Is(err, headgate.ErrCrossSlot):
			// One after the other, then.
		case err != nil:
			return s.out, unavailable(err)
		case !out[0].Allowed:
			s.out.Ending = Settled
			return s.out, nil
		case allAllowed(out):
			return s.finish(ctx)
		}
	}
	// What does not fit becomes a debt.
	d, err := s.engine.store.Take(ctx, mark)
	if err != nil {
		return s.out, unavailable(err)
	}
	if !d.Allowed {
		s.out.Ending = Settled
		return s.out, nil
	}
	for i := range s.ops {
		if s.ops[i].Kind == headgate.Take {
			s.ops[i].Kind = headgate.Charge
		}
	}
	if err := s.make(ctx, s.engine.store, s.ops); err != nil {
		return s.out, unavailable(err)
	}
	return s.finish(ctx)
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

// finish settles with this process's memory, which never fails.
func (s *settling) finish(ctx context.Context) (Settlement, error) {
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

// mark is what can be taken once.
func (s *settling) mark() headgate.Op {
	period := time.Duration(s.until-s.made)*time.Microsecond + settledSlack
	op := headgate.Op{
		Scope: "reservation/" + s.id, Cost: 1, At: s.at, Kind: headgate.Take,
		Limit: headgate.Per(1, period).Using(headgate.FixedWindow).Anchored(headgate.AnchorFirstRequest),
	}
	if len(s.ops) > 0 {
		op.Key = s.ops[0].Key // in a cluster, where that is
	} else if len(s.parts) > 0 {
		op.Key = s.parts[0].key
	}
	return op
}

func allAllowed(out []headgate.Decision) bool {
	for i := range out {
		if !out[i].Allowed {
			return false
		}
	}
	return true
}

func (r *reservation) append(dst []byte) []byte {
	dst = appendText(dst, r.id)
	for _, n := range [...]int64{r.made, r.until, r.cost, int64(len(r.parts))} {
		dst = binary.AppendVarint(dst, n)
	}
	for i := range r.parts {
		p := &r.parts[i]
		dst = appendText(appendText(appendText(dst, p.domain), p.rule), p.key)
		local := int64(0)
		if p.local {
			local = 1
		}
		for _, n := range [...]int64{int64(p.algorithm), p.each, p.granted, int64(p.freshIn), local} {
			dst = binary.AppendVarint(dst, n)
		}
	}
	return append(dst, r.leases...)
}

func readReservation(plain []byte) (*reservation, bool) {
	in := &tokenReader{in: plain}
	r := &reservation{id: in.text(), made: in.number(), until: in.number(), cost: in.number()}
	for n := in.number(); n > 0 && !in.bad; n-- {
		r.parts = append(r.parts, reserved{
			domain: in.text(), rule: in.text(), key: in.text(),
			algorithm: headgate.Algorithm(in.number()), each: in.number(), granted: in.number(),
			freshIn: time.Duration(in.number()), local: in.number() == 1,
		})
	}
	r.leases = in.in
	return r, !in.bad
}
