package rules

import "github.com/headgate/headgate"

// CostFrom says which attribute of a request tells its cost.
type CostFrom struct {
	// Attribute is where the cost stands, as a whole number.
	Attribute Attribute
	// Default is the cost of a request that lacks the attribute.
	Default int64
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
