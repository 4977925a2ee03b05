package engine

import (
	"context"
	"math/bits"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// settledSlack is how much longer a settled reservation is remembered than it could be
// settled, to allow for nodes with different clocks.
const settledSlack = 5 * time.Minute

// note writes the records of a reservation. A record is a lease next to each key that
// something was taken from, in the same store, which lasts as long as the reservation
// can be settled. A store that has lost the take has lost the record too. If nothing
// was taken, there is no record: a client that reserves nothing is never refused, and
// would fill the store with records.
func (e *Engine) note(ctx context.Context, r *reservation) {
	e.noteIn(ctx, e.store, r, fromStore)
	if e.fallback != nil {
		e.noteIn(context.WithoutCancel(ctx), e.fallback, r, fromFallback)
	}
}

func (e *Engine) noteIn(ctx context.Context, in headgate.Store, r *reservation, from origin) {
	var places []place
	debts := map[place]time.Duration{}
	for i := range r.parts {
		if p := &r.parts[i]; p.granted > 0 && p.from == from {
			if _, ok := debts[p.place]; !ok {
				places = append(places, p.place)
			}
			debts[p.place] = max(debts[p.place], p.debt)
		}
	}
	if len(places) == 0 {
		return
	}
	ops, out := make([]headgate.Op, len(places)), make([]headgate.Decision, len(places))
	for i, at := range places {
		ops[i] = r.record(at, debts[at])
	}
	err := in.Do(ctx, ops, out, headgate.Independent)
	for i := range ops {
		if store.Failed(err, i) {
			continue // it cannot be refunded
		}
		for j := range r.parts {
			if p := &r.parts[j]; p.granted > 0 && p.from == from && p.place == places[i] {
				p.record = out[i].Lease
			}
		}
	}
}

// place is where something is counted: under a key, in this region or in another one.
type place struct{ key, home string }

// in returns l so that it is counted in the region of p.
func (p place) in(l headgate.Limit) headgate.Limit {
	if p.home == "" {
		return l
	}
	return l.InRegions(headgate.Regions{Home: p.home})
}

// record returns the op that writes a record. It takes one of many slots, so that its
// debt, by which a full store chooses what to evict, is at most that of the take, or 1⅓
// seconds. So although it lasts longer, it evicts nothing that the take would not.
func (r *reservation) record(at place, debt time.Duration) headgate.Op {
	lasting := time.Duration(r.until-r.made) * time.Microsecond
	return headgate.Op{
		Key: at.key, Scope: "reserved/" + r.id, Cost: 1, At: r.made, Kind: headgate.Take,
		Limit: at.in(headgate.Concurrent(min(dilution(lasting, debt), headgate.MaxConcurrent)).Lease(lasting)),
	}
}

// ending returns the ops that end a record. They succeed only once, and only while the
// record exists.
func ending(record headgate.Op, name, at int64) []headgate.Op {
	record.At, record.Lease = at, name
	end := record
	record.Kind, end.Kind = headgate.Renew, headgate.Reset
	return []headgate.Op{record, end}
}

// mark returns the ops that replace a record if nothing was taken. They succeed only
// for the first settlement: they take a whole window and refund all but one, so that
// the mark is a debt of at most debt; see record.
func (r *reservation) mark(of place, debt time.Duration, at int64) []headgate.Op {
	lasting := max(time.Duration(r.until-at)*time.Microsecond, 0) + settledSlack
	n := dilution(lasting, debt)
	op := headgate.Op{
		Key: of.key, Scope: "settled/" + r.id, Cost: n, At: at, Kind: headgate.Take,
		Limit: of.in(headgate.Per(n, lasting).Using(headgate.FixedWindow).Anchored(headgate.AnchorFirstRequest)),
	}
	rest := op
	rest.Kind, rest.Cost = headgate.Refund, n-1
	return []headgate.Op{op, rest}
}

// dilution returns the number of slots of which one must be taken for so long to be a
// debt of at most debt.
func dilution(lasting, debt time.Duration) int64 {
	debt = max(debt, time.Microsecond)
	return min(int64((lasting+debt-1)/debt), headgate.MaxLimit)
}

// debtOf returns the debt of n taken from an unused key.
func debtOf(limit headgate.Limit, n int64) time.Duration {
	rule := limit.Rule()
	if rule.Limit <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(min(n, rule.Limit)), uint64(rule.Period))
	debt, _ := bits.Div64(hi, lo, uint64(rule.Limit)) // hi < Limit, as n ≤ Limit and Period < 2^64
	return time.Duration(debt) * time.Microsecond
}
