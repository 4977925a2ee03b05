package rules

import (
	"net/textproto"

	"github.com/headgate/headgate/internal/base/enum"
	"github.com/headgate/headgate/store"
)

// CostFrom says which attribute of a request has its cost.
type CostFrom struct {
	Attribute Attribute // holds the cost as a whole number
	Default   int64     // the cost of a request that lacks the attribute
	// Min and Max limit the cost. A value that is not a number from 0 on costs
	// Max, so that clients gain nothing from it.
	Min, Max int64
}

// cost returns the cost that a value of the attribute gives.
func (c *CostFrom) cost(v value) int64 {
	if !v.ok {
		return c.Default
	}
	n := int64(0)
	for i := range len(v.text) {
		digit := v.text[i] - '0'
		if digit > 9 {
			return c.Max
		}
		// Once above the largest, it stays there: no overflow.
		if n <= store.MaxLimit {
			n = 10*n + int64(digit)
		}
	}
	if v.text == "" {
		return c.Max
	}
	return min(max(n, c.Min), c.Max)
}

// costOf returns what the request costs under r.
func (r *Rule) costOf(f *facts) int64 {
	if r.CostFrom == nil {
		return r.Cost
	}
	c := r.CostFrom
	v := f.get(c.Attribute)
	if v.unclear {
		return c.Max
	}
	return c.cost(v)
}

// CostAfter says how the upstream's response gives the cost of a request, for doors
// that see the response.
type CostAfter struct {
	// On, if not nil, says which answers count: the cost is that charged before the
	// request, or 0. Abort is then AbortEstimate or AbortFixed with a cost of 0, and
	// the other fields are not used.
	On *ChargeOn
	// Header is the header field or, of a stream, the trailer, in its canonical
	// form. It holds a whole number.
	Header string
	// CancelErrors refunds the estimate if the upstream cannot be reached, or answers
	// with a status of 500 or more.
	CancelErrors bool
	// Abort says what a request costs whose response was cut off, so that its cost
	// is unknown; AbortCost is the cost for AbortFixed.
	Abort     Abort
	AbortCost int64
}

// Abort says what a request costs whose response was cut off.
type Abort uint8

// The choices.
const (
	// AbortLargest is the largest cost seen so far, or the estimate if that is
	// more, so that hanging up does not make requests cheaper.
	AbortLargest  Abort = iota
	AbortEstimate       // the estimate
	AbortFixed          // a number
)

// String returns the word that rules use.
func (a Abort) String() string { return enum.Name(a, "abort", "largest", "estimate", "fixed") }

// OnAbort returns the cost of a request whose cost is unknown. estimate is what was
// charged, largest the largest cost seen so far.
func (c *CostAfter) OnAbort(estimate, largest int64) int64 {
	switch c.Abort {
	case AbortEstimate:
		return estimate
	case AbortFixed:
		return c.AbortCost
	case AbortLargest:
	}
	return max(estimate, largest)
}

// Cost parses the value of the header, and reports false if it is not a whole number
// from 0 to store.MaxLimit.
func (c *CostAfter) Cost(text string) (int64, bool) {
	from := CostFrom{Max: store.MaxLimit + 1}
	n := from.cost(value{text: textproto.TrimString(text), ok: true})
	return n, n <= store.MaxLimit
}
