package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// How long a reservation can be settled.
const (
	DefaultReservation = 10 * time.Minute // if the caller gives no time
	MaxReservation     = 24 * time.Hour   // the maximum
)

// Settlement is the result of settling a reservation.
type Settlement struct {
	Ending Ending // Done, Settled or Expired
	InDebt bool   // the real cost did not fit: later requests wait until it is paid back
	// Lost names rules that no longer exist, count differently now, or took from the
	// memory of another process. What they took is not corrected.
	Lost []string
}

// reserved is what a reservation took under one rule.
type reserved struct {
	place

	domain, rule string
	algorithm    headgate.Algorithm
	each         int64 // the amount taken by a request of cost 1
	granted      int64
	freshIn      time.Duration // how long the take counts
	countsUntil  int64         // until when, by the store's clock; 0 in old tokens
	member       uint64        // of a rule that counts values; 0 for others
	from         origin
	given        string // what the request gave of the limit; see rules.Rule.GivenText
	owner        string // whose fair share was taken, with its weight; 0 if there was none
	weight       int64
}

// reservation is the content of a reservation token.
type reservation struct {
	id          string
	made, until int64
	home        int64 // the process whose memory holds the local parts
	parts       []reserved
	leases      []byte // in the form of appendLeases
}

// Reserve is Decide for a request whose cost is only known afterwards: q.Cost is an
// estimate. The returned token is empty for a refusal. Commit or Cancel settles it
// within ttl, on this or another node; otherwise the estimate stays charged. q.At is
// required.
func (e *Engine) Reserve(ctx context.Context, q Query, ttl time.Duration) (v Verdict, token string, err error) {
	v, err = e.Decide(ctx, q)
	if !v.Allowed || q.Kind != store.KindTake {
		return v, "", err
	}
	ttl = min(max(ttl, time.Millisecond), MaxReservation)
	r := reservation{id: rand.Text(), made: q.At, until: q.At + ttl.Microseconds(), home: e.home}
	results := v.Results()
	for i := range results {
		d := &results[i].Decision
		rule := results[i].Rule
		if d.Reason == headgate.ReasonNoLimit || d.Reason == store.ReasonShadow || rule.Concurrent() {
			continue // a slot is no cost; unless admitted by credit, it is among the leases
		}
		r.parts = append(r.parts, results[i].reserved())
	}
	r.leases = e.appendLeases(nil, v.Leases(nil))
	local := slices.ContainsFunc(r.parts, func(p reserved) bool { return p.from == fromFallback })
	token, sealErr := e.seal.close(ctx, reservationToken, r.append(nil), origin(local))
	return v, token, errors.Join(err, sealErr)
}

// Commit settles a reservation with the real cost: it charges the difference, into debt
// if need be, or refunds it, less what time has already returned. It counts at most
// once, however often and wherever it is called. at is now, in microseconds since the
// Unix epoch, and is required. The error is ErrBadToken, headgate.ErrInvalidCost, or
// wraps headgate.ErrUnavailable.
//
// A failed call may be retried. The retry settles the reservation, or returns Settled
// if the call whose answer was lost already did. There is one exception: a difference
// that does not fit takes two steps. If the store fails between them, the estimate
// stays charged, the difference is lost, and a retry returns Settled: that is better
// than charging twice. The same applies to keys in several slots of a Redis Cluster,
// which are settled one after the other.
func (e *Engine) Commit(ctx context.Context, token string, cost, at int64) (Settlement, error) {
	if cost < 0 {
		return Settlement{}, headgate.ErrInvalidCost
	}
	return e.settleReservation(ctx, token, cost, at)
}

// Cancel settles a reservation for a request that was not made: everything it took is
// refunded; see [Engine.Commit].
func (e *Engine) Cancel(ctx context.Context, token string, at int64) (Settlement, error) {
	return e.settleReservation(ctx, token, 0, at)
}

func (e *Engine) settleReservation(ctx context.Context, token string, cost, at int64) (Settlement, error) {
	r, err := e.openReservation(ctx, reservationToken, token)
	if err != nil {
		return Settlement{}, err
	}
	s := settling{engine: e, reservation: r, at: at, costOf: func(p *reserved, _ *rules.Rule) int64 { return times(cost, p.each) }}
	s.plan()
	out, err := s.settle(ctx)
	if err != nil || out.Ending != Done {
		return out, err
	}
	reader := &tokenReader{in: r.leases}
	leases := e.leases(reader, at)
	ended, err := e.ReleaseLeases(ctx, leases, at)
	if err == nil && ended == 0 && len(leases) > 0 && len(s.accounts) == 0 {
		out.Ending = Settled // only slots, which are released
	}
	return out, err
}

// What the last number of a part says. Parts without partCounts come from nodes that did
// not write countsUntil.
const (
	partLocal  = 1 << iota // it was taken from a process's memory
	partCounts             // countsUntil follows
	partGiven              // given follows
	partMember             // member follows
	partHome               // home follows
	partShare              // weight and owner follow
)

func (r *reservation) append(dst []byte) []byte {
	dst = appendText(dst, r.id)
	for _, n := range [...]int64{r.made, r.until, r.home, int64(len(r.parts))} {
		dst = binary.AppendVarint(dst, n)
	}
	for i := range r.parts {
		p := &r.parts[i]
		dst = appendText(appendText(appendText(dst, p.domain), p.rule), p.key)
		flags := int64(partCounts)
		if p.from == fromFallback {
			flags |= partLocal
		}
		if p.given != "" {
			flags |= partGiven
		}
		if p.member != 0 {
			flags |= partMember
		}
		if p.home != "" {
			flags |= partHome
		}
		if p.weight != 0 {
			flags |= partShare
		}
		for _, n := range [...]int64{int64(p.algorithm), p.each, p.granted, int64(p.freshIn), 0, flags, p.countsUntil} {
			dst = binary.AppendVarint(dst, n)
		}
		if p.given != "" {
			dst = appendText(dst, p.given)
		}
		if p.member != 0 {
			dst = binary.AppendVarint(dst, int64(p.member)) // below 2^52
		}
		if p.home != "" {
			dst = appendText(dst, p.home)
		}
		if p.weight != 0 {
			dst = appendText(binary.AppendVarint(dst, p.weight), p.owner)
		}
	}
	return append(dst, r.leases...)
}

func readReservation(plain []byte) (*reservation, bool) {
	in := &tokenReader{in: plain}
	r := &reservation{id: in.text(), made: in.number(), until: in.number(), home: in.number()}
	for n := in.number(); n > 0 && !in.bad; n-- {
		p := reserved{
			domain: in.text(), rule: in.text(), place: place{key: in.text()},
			algorithm: headgate.Algorithm(in.number()), each: in.number(), granted: in.number(),
			freshIn: time.Duration(in.number()),
		}
		in.number() // older nodes wrote a record of the take, with this number
		flags := in.number()
		if p.from = origin(flags&partLocal != 0); flags&partCounts != 0 {
			p.countsUntil = in.number()
		}
		if flags&partGiven != 0 {
			p.given = in.text()
		}
		if flags&partMember != 0 {
			p.member = uint64(in.number())
		}
		if flags&partHome != 0 {
			p.home = in.text()
		}
		if flags&partShare != 0 {
			p.weight, p.owner = in.number(), in.text()
		}
		r.parts = append(r.parts, p)
	}
	r.leases = in.in
	return r, !in.bad
}
