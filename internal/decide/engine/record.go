package engine

import (
	"context"
	"math/bits"
	"time"

	"github.com/headgate/headgate"
)

// settledSlack is how much longer it is remembered that a reservation is settled
// than it could be settled, for nodes whose clocks differ.
const settledSlack = 5 * time.Minute

// note writes the records of a reservation: next to each key that something was taken
// of, and in the same store, a lease that lasts as long as the reservation can be
// settled. A store that has lost what was taken has lost it, too. Where nothing was
// taken there is none: a client that reserves nothing is never refused, and would fill the
// store with records.
func (e *Engine) note(ctx context.Context, r *reservation) {
	e.noteIn(ctx, e.store, r, fromStore)
	if e.fallback != nil {
		e.noteIn(context.WithoutCancel(ctx), e.fallback, r, fromFallback)
	}
}

func (e *Engine) noteIn(ctx context.Context, store headgate.Store, r *reservation, from origin) {
	var ops []headgate.Op
	debts := map[string]time.Duration{}
	for i := range r.parts {
		if p := &r.parts[i]; p.granted > 0 && p.from == from {
			if _, ok := debts[p.key]; !ok {
				ops = append(ops, headgate.Op{Key: p.key})
			}
			debts[p.key] = max(debts[p.key], p.debt)
		}
	}
	if len(ops) == 0 {
		return
	}
	for i := range ops {
		ops[i] = r.record(ops[i].Key, debts[ops[i].Key])
	}
	out := make([]headgate.Decision, len(ops))
	if err := store.Do(ctx, ops, out, headgate.Independent); err != nil {
		return // and nothing can be given back
	}
	for i := range ops {
		for j := range r.parts {
			if p := &r.parts[j]; p.granted > 0 && p.from == from && p.key == ops[i].Key {
				p.record = out[i].Lease
			}
		}
	}
}

// record is the op that writes a record. It takes one of so many places that its
// debt, by which a full store chooses what it forgets, is at most that of what was
// taken, or a second and a third: it lasts longer, but pushes out nothing that this
// would not.
func (r *reservation) record(key string, debt time.Duration) headgate.Op {
	lasting := time.Duration(r.until-r.made) * time.Microsecond
	return headgate.Op{
		Key: key, Scope: "reserved/" + r.id, Cost: 1, At: r.made, Kind: headgate.Take,
		Limit: headgate.Concurrent(min(dilution(lasting, debt), headgate.MaxConcurrent)).Lease(lasting),
	}
}

// ending are the ops that only the first one passes who ends a record, and only
// while there is one.
func ending(record headgate.Op, name, at int64) []headgate.Op {
	record.At, record.Lease = at, name
	end := record
	record.Kind, end.Kind = headgate.Renew, headgate.Reset
	return []headgate.Op{record, end}
}

// mark are the ops that only the first settlement passes of what has no record,
// as nothing was taken: all of a window is taken, and all but one given back, so
// that the mark is a debt of at most debt; see record.
func (r *reservation) mark(key string, debt time.Duration, at int64) []headgate.Op {
	lasting := max(time.Duration(r.until-at)*time.Microsecond, 0) + settledSlack
	n := dilution(lasting, debt)
	op := headgate.Op{
		Key: key, Scope: "settled/" + r.id, Cost: n, At: at, Kind: headgate.Take,
		Limit: headgate.Per(n, lasting).Using(headgate.FixedWindow).Anchored(headgate.AnchorFirstRequest),
	}
	rest := op
	rest.Kind, rest.Cost = headgate.Refund, n-1
	return []headgate.Op{op, rest}
}

// dilution is of how many places one has to be taken for so long to be a debt of at
// most debt.
func dilution(lasting, debt time.Duration) int64 {
	debt = max(debt, time.Microsecond)
	return min(int64((lasting+debt-1)/debt), headgate.MaxLimit)
}

// debtOf is for how long n, taken of a key that was unused, makes it one that is not.
func debtOf(limit headgate.Limit, n int64) time.Duration {
	rule := limit.Rule()
	if rule.Limit <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(min(n, rule.Limit)), uint64(rule.Period))
	debt, _ := bits.Div64(hi, lo, uint64(rule.Limit)) // hi < Limit, as n ≤ Limit and Period < 2^64
	return time.Duration(debt) * time.Microsecond
}
