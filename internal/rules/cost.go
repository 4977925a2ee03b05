package rules

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

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

func costKeys() []string {
	return append([]string{"from", "default", "min", "max"}, costAfterKeys()...)
}

// parseCost reads cost: a number, or where it stands.
func (p *parser) parseCost(n *yamltext.Node, r *Rule) {
	if n.Kind != yamltext.Map {
		if cost, ok := p.Integer(n, "cost", 0, headgate.MaxLimit); ok {
			r.Cost = cost
		}
		return
	}
	f := p.Fields(n, "cost", costKeys())
	if f.Get("from_response") != nil || f.Get("estimate") != nil || f.Get("on_error") != nil || f.Get("on_abort") != nil {
		p.parseCostAfter(n, f, r)
		return
	}
	c := &CostFrom{Default: 1, Min: 1, Max: headgate.MaxLimit}
	if r.Limit.Valid() && !r.Limit.IsUnlimited() && r.Limit.Capacity() > 0 {
		c.Max = r.Limit.Capacity()
	}
	from := f.Get("from")
	if from == nil {
		if !yamltext.HasKey(n, "from") {
			p.Errorf(n, "for example from: \"header:X-Tokens\"", "\"from\" is missing in cost")
		}
		return
	}
	text, ok := p.Word(from, "from")
	if !ok {
		return
	}
	a, err := ParseAttribute(text)
	if err != nil {
		p.Errorf(from, "", "%v", err)
		return
	}
	if a.Kind == Method || a.Kind == Path || a.Kind == Host || a.Kind == ClientIP {
		p.Errorf(from, "", "the %s is no cost", a)
		return
	}
	p.checkEntry(from, a)
	c.Attribute = a
	bound := func(key string, into *int64, low int64) {
		if n := f.Get(key); n != nil {
			if v, ok := p.Integer(n, key, low, headgate.MaxLimit); ok {
				*into = v
			}
		}
	}
	bound("max", &c.Max, 1)
	bound("min", &c.Min, 0)
	bound("default", &c.Default, 0)
	if at := f.Get("min"); at != nil && c.Min > c.Max {
		p.Errorf(at, "", "the least cost, %d, is more than the largest, %d", c.Min, c.Max)
		return
	}
	c.Min = min(c.Min, c.Max)
	if at := f.Get("default"); at != nil && (c.Default < c.Min || c.Default > c.Max) {
		p.Errorf(at, "", "the default cost must be from %d to %d, as the others", c.Min, c.Max)
		return
	} else if at == nil {
		c.Default = max(c.Default, c.Min)
	}
	r.Cost, r.CostFrom = c.Default, c
}
