package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"time"

	"github.com/headgate/headgate"
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
	record      int64 // the name of the lease that it is; 0 for none
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
	e.note(ctx, &r)
	token, sealErr := e.seal.close(ctx, reservationToken, r.append(nil))
	return v, token, errors.Join(err, sealErr)
}

// note writes the record of a reservation to the store: a lease of its own, which
// lasts as long as it can be settled. If it cannot be written, or what was taken is
// in this process's memory, the reservation does without.
func (e *Engine) note(ctx context.Context, r *reservation) {
	for i := range r.parts {
		if r.parts[i].local {
			return
		}
	}
	if d, err := e.store.Take(ctx, r.open(r.made)); err == nil && d.Allowed {
		r.record = d.Lease
	}
}

// open is the op that writes the record.
func (r *reservation) open(at int64) headgate.Op {
	return headgate.Op{
		Key: r.place(), Scope: "reserved/" + r.id, Cost: 1, At: at, Kind: headgate.Take,
		Limit: headgate.Concurrent(1).Lease(time.Duration(r.until-r.made) * time.Microsecond),
	}
}

// place is the key under which the store keeps what it knows of the reservation: in
// a cluster where what it has taken first is.
func (r *reservation) place() string {
	if len(r.parts) > 0 {
		return r.parts[0].key
	}
	return ""
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
	if r.record == 0 && at >= r.until { // otherwise the store's clock says so
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

func (r *reservation) append(dst []byte) []byte {
	dst = appendText(dst, r.id)
	for _, n := range [...]int64{r.made, r.until, r.cost, r.record, int64(len(r.parts))} {
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
	r := &reservation{id: in.text(), made: in.number(), until: in.number(), cost: in.number(), record: in.number()}
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
