package rules

import (
	"net/textproto"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/enum"
)

// CostFrom says which attribute of a request tells its cost.
type CostFrom struct {
	Attribute Attribute // where the cost stands, as a whole number
	Default   int64     // the cost of a request that lacks the attribute
	// Min and Max bound what is believed. What is no number from 0 on costs
	// Max, so that nobody gains from it.
	Min, Max int64
}

// cost returns what the value of the attribute comes to.
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
		if n <= headgate.MaxLimit {
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
	cost := c.cost(f.get(c.Attribute))
	texts, unclear := f.others(c.Attribute)
	if unclear {
		return c.Max
	}
	for _, text := range texts {
		cost = max(cost, c.cost(value{text: text, ok: true}))
	}
	return cost
}

// CostAfter says where the response of the upstream tells what a request has
// taken, for doors that see it.
type CostAfter struct {
	// Header is the header field or, of a stream, the trailer, in its canonical
	// form. It holds a whole number.
	Header string
	// CancelErrors gives the estimate back if the upstream cannot be reached, or
	// answers with a status from 500 on.
	CancelErrors bool
	// Abort says what a request costs whose response did not come to its end,
	// so that nobody knows; AbortCost is that number if it is AbortFixed.
	Abort     Abort
	AbortCost int64
}

// Abort says what a request costs whose response did not come to its end.
type Abort uint8

// The choices.
const (
	// AbortLargest is the largest cost that the rule has seen so far, or the
	// estimate if that is more: to hang up is never cheaper than to stay.
	AbortLargest  Abort = iota
	AbortEstimate       // the estimate
	AbortFixed          // a number
)

// String returns the word that rules use.
func (a Abort) String() string { return enum.Name(a, "abort", "largest", "estimate", "fixed") }

// OnAbort returns what a request costs that nobody will know the cost of, where
// estimate was charged and largest is the most that one has cost so far.
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

// Cost returns what the text of the field comes to, and false if it is no whole
// number from 0 to headgate.MaxLimit.
func (c *CostAfter) Cost(text string) (int64, bool) {
	from := CostFrom{Max: headgate.MaxLimit + 1}
	n := from.cost(value{text: textproto.TrimString(text), ok: true})
	return n, n <= headgate.MaxLimit
}
