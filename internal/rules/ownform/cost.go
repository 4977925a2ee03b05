package ownform

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

func costKeys() []string {
	return []string{"from", "default", "min", "max", "estimate", "from_response", "on_error", "on_abort"}
}

// parseCost reads cost: a number, or where to find it.
func (p *Parser) parseCost(n *yamltext.Node, r *rules.Rule) {
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
	c := &rules.CostFrom{Default: 1, Min: 1, Max: headgate.MaxLimit}
	if r.Limit.Valid() && !r.Limit.IsUnlimited() && r.Limit.Capacity() > 0 {
		c.Max = r.Limit.Capacity()
	}
	from := f.Get("from")
	if from == nil {
		if !yamltext.HasKey(n, "from") {
			p.Errorf(n, "for example from: \"header:X-Tokens\"", "cost has no \"from\"")
		}
		return
	}
	text, ok := p.Word(from, "from")
	if !ok {
		return
	}
	a, err := rules.ParseAttribute(text)
	if err != nil {
		p.Errorf(from, "", "%v", err)
		return
	}
	if a.Kind == rules.Method || a.Kind == rules.Path || a.Kind == rules.Host || a.Kind == rules.ClientIP {
		p.Errorf(from, "", "the cost cannot be read from the %s", a)
		return
	}
	p.CheckEntry(from, a)
	c.Attribute = a
	p.IntegerOf(f, "max", 1, headgate.MaxLimit, &c.Max)
	p.IntegerOf(f, "min", 0, headgate.MaxLimit, &c.Min)
	p.IntegerOf(f, "default", 0, headgate.MaxLimit, &c.Default)
	if at := f.Get("min"); at != nil && c.Min > c.Max {
		p.Errorf(at, "", "the minimum cost, %d, is more than the maximum, %d", c.Min, c.Max)
		return
	}
	c.Min = min(c.Min, c.Max)
	if at := f.Get("default"); at != nil && (c.Default < c.Min || c.Default > c.Max) {
		p.Errorf(at, "", "\"default\" must be from %d to %d, between the minimum and the maximum cost", c.Min, c.Max)
		return
	} else if at == nil {
		c.Default = max(c.Default, c.Min)
	}
	r.Cost, r.CostFrom = c.Default, c
}

// parseCostAfter reads a cost that comes from the response.
func (p *Parser) parseCostAfter(at *yamltext.Node, f yamltext.Fields, r *rules.Rule) {
	for _, key := range []string{"from", "default", "min", "max"} {
		if field, ok := f[key]; ok {
			p.Errorf(field.Key, "", "%q cannot be combined with from_response", key)
		}
	}
	from := f.Get("from_response")
	if from == nil {
		p.Errorf(at, "for example from_response: X-Tokens-Used", "cost has no \"from_response\"")
		return
	}
	name, ok := p.Word(from, "from_response")
	if !ok {
		return
	}
	canonical, ok := rules.CanonicalHeader(name)
	if !ok {
		p.Errorf(from, "", "invalid header name %s", clip.Quote(name))
		return
	}
	after := &rules.CostAfter{Header: canonical, CancelErrors: p.ChoiceOf(f, "on_error", "keep", "cancel") == "cancel"}
	if n := f.Get("on_abort"); n != nil {
		p.parseAbort(n, after)
	}
	p.IntegerOf(f, "estimate", 1, headgate.MaxLimit, &r.Cost)
	if r.Concurrent() {
		p.Errorf(from, "", "\"from_response\" does not work with concurrency: a request takes its slots before its cost is known")
		return
	}
	r.CostAfter = after
}

// parseAbort reads on_abort: a word or a number.
func (p *Parser) parseAbort(n *yamltext.Node, after *rules.CostAfter) {
	if n.Kind == yamltext.Number {
		if v, ok := p.Integer(n, "on_abort", 0, headgate.MaxLimit); ok {
			after.Abort, after.AbortCost = rules.AbortFixed, v
		}
		return
	}
	word, _ := p.Choice(n, "on_abort", rules.AbortLargest.String(), rules.AbortEstimate.String())
	if word == rules.AbortEstimate.String() {
		after.Abort = rules.AbortEstimate
	}
}
