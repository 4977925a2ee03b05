package engine

import (
	"math/bits"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// settledSlack is how much longer a settled reservation is remembered than it could be
// settled, to allow for nodes with different clocks.
const settledSlack = 5 * time.Minute

// place is where something is counted: under a key, in this region or in another one.
type place struct{ key, home string }

// in returns l so that it is counted in the region of p.
func (p place) in(l headgate.Limit) headgate.Limit {
	if p.home == "" {
		return l
	}
	return headgate.LimitOf(l.Rule().InRegions(store.Regions{Home: p.home}))
}

// mark returns the ops that succeed only for the first settlement. They take a whole
// window next to the count, in the same store, and refund all but one. That one is a
// debt of at most debt, by which a full store chooses what to evict: with the debt of
// what was taken, a mark evicts nothing that the take would not. Its scope has the home, which
// may be in the same store as this region.
func (r *reservation) mark(of place, debt time.Duration, at int64) []store.Op {
	lasting := max(time.Duration(r.until-at)*time.Microsecond, 0) + settledSlack
	n := dilution(lasting, debt)
	scope := "settled/" + r.id
	if of.home != "" {
		scope += "@" + of.home
	}
	op := store.Op{
		Key: of.key, Scope: scope, Cost: n, At: at, Kind: store.KindTake,
		Rule: of.in(headgate.Per(n, lasting).WithAlgorithm(headgate.FixedWindow).WithAnchor(headgate.AnchorFirstRequest)).Rule(),
	}
	rest := op
	rest.Kind, rest.Cost = store.KindRefund, n-1
	return []store.Op{op, rest}
}

// dilution returns the number of slots of which one must be taken for so long to be a
// debt of at most debt.
func dilution(lasting, debt time.Duration) int64 {
	debt = max(debt, time.Microsecond)
	return min(int64((lasting+debt-1)/debt), store.MaxLimit)
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
