package ownform

import (
	"fmt"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/yamltext"
	"github.com/headgate/headgate/store"
)

// costForm is a cost that is being read.
type costForm struct {
	from     rules.Attribute
	bounds   rules.CostFrom
	after    rules.CostAfter
	estimate int64
}

// costKeys are the keys of a cost that is not a number.
func (p *Parser) costKeys(c *costForm) form.Mapping {
	whole := form.Integer(0, store.MaxLimit, new(int64)).Or("1")
	return form.Mapping{
		Def: "cost", Doc: "What a request costs. Multiplied by the cost that the request itself has.", Short: &whole,
		Rows: []form.Row{
			{Key: "from", Doc: "The attribute that holds the cost.", Type: form.Ref("given").By("an attribute", func(n *yamltext.Node) {
				c.from, _ = p.attributeOf(n, "from", func(a rules.Attribute) (message, hint string) {
					return fmt.Sprintf("the cost cannot be read from the %s", a), ""
				})
			})},
			{Key: "default", Doc: "The cost of a request that lacks the attribute.", Type: form.Integer(0, store.MaxLimit, &c.bounds.Default)},
			{Key: "min", Doc: "The minimum cost; lower values are raised to it.", Type: form.Integer(0, store.MaxLimit, &c.bounds.Min)},
			{
				Key: "max", Doc: "The maximum cost; higher values are lowered to it, and values that are not numbers count as it.",
				Type: form.Integer(1, store.MaxLimit, &c.bounds.Max).Or("the limit's capacity"),
			},
			{
				Key: "from_response", Doc: "The header or trailer of the upstream's response that holds the cost. Only the proxy sees it.", See: "more/charge-on.md",
				Type: form.Ref("fieldName").By("the name of a header", func(n *yamltext.Node) { c.after.Header = p.fieldName(n) }),
			},
			{Key: "estimate", Doc: "What the request is charged until the response reports its cost.", Type: form.Integer(1, store.MaxLimit, &c.estimate)},
			{
				Key: "on_error", Doc: "Whether the estimate is kept or cancelled if the upstream does not answer, or answers with a 5xx.",
				Type: form.Switch(&c.after.CancelErrors, "keep", "cancel"),
			},
			{
				Key: "on_abort", Doc: "What a request costs if its response is cut off. largest: the largest cost seen so far, but at least the estimate. estimate: the estimate. Or a number.",
				Type: form.Type{Schema: `"anyOf":[{"enum":["largest","estimate"]},{` + whole.Said().Schema + "}]", Default: "largest"}.
					By("`largest`, `estimate`, or a number", func(n *yamltext.Node) { p.parseAbort(n, &c.after) }),
			},
		},
		Extra: `"anyOf":[{"required":["from"],"properties":{"estimate":false,"from_response":false,"on_error":false,"on_abort":false}},` +
			`{"required":["from_response"],"properties":{"from":false,"default":false,"min":false,"max":false}}]`,
	}
}

// fieldName reads the name of a header.
func (p *Parser) fieldName(n *yamltext.Node) string {
	name, ok := p.Word(n, "from_response")
	if !ok {
		return ""
	}
	canonical, ok := rules.CanonicalHeader(name)
	if !ok {
		p.Errorf(n, "", "invalid header name %s", clip.Quote(name))
	}
	return canonical
}

// parseCost reads cost: a number, or where to find it.
func (p *Parser) parseCost(n *yamltext.Node, r *rules.Rule) {
	if n.Kind != yamltext.Map {
		form.ReadOne(p.Report, "cost", n, form.Integer(0, store.MaxLimit, &r.Cost))
		return
	}
	c := costForm{bounds: rules.CostFrom{Default: 1, Min: 1, Max: store.MaxLimit}, estimate: r.Cost}
	if r.Limit.Rule().Valid() && !r.Limit.Rule().Unlimited && r.Limit.Burst() > 0 {
		c.bounds.Max = r.Limit.Burst()
	}
	before := p.Errors
	f := form.Read(p.Report, n, "cost", p.costKeys(&c).Rows)
	_, header := f["from_response"]
	_, estimate := f["estimate"]
	_, onError := f["on_error"]
	_, onAbort := f["on_abort"]
	switch {
	case header || estimate || onError || onAbort:
		p.costAfter(n, f, r, &c)
	case f.Get("from") == nil:
		if !yamltext.HasKey(n, "from") {
			p.Errorf(n, "for example from: \"header:X-Tokens\"", "cost has no \"from\"")
		}
	case p.Errors == before:
		p.costFrom(f, r, &c)
	}
}

// costFrom makes the cost one that an attribute holds.
func (p *Parser) costFrom(f yamltext.Fields, r *rules.Rule, form *costForm) {
	c := form.bounds
	c.Attribute = form.from
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
	r.Cost, r.CostFrom = c.Default, &c
}

// costAfter makes the cost one that the response holds.
func (p *Parser) costAfter(at *yamltext.Node, f yamltext.Fields, r *rules.Rule, c *costForm) {
	for _, key := range []string{"from", "default", "min", "max"} {
		if field, ok := f[key]; ok {
			p.Errorf(field.Key, "", "%q cannot be combined with from_response", key)
		}
	}
	from := f.Get("from_response")
	switch {
	case from == nil:
		p.Errorf(at, "for example from_response: X-Tokens-Used", "cost has no \"from_response\"")
	case r.Concurrent():
		p.Errorf(from, "", "\"from_response\" does not work with concurrency: a request takes its slots before its cost is known")
	case c.after.Header != "":
		r.Cost, r.CostAfter = c.estimate, &c.after
	}
}

// parseAbort reads on_abort: a word or a number.
func (p *Parser) parseAbort(n *yamltext.Node, after *rules.CostAfter) {
	if n.Kind == yamltext.Number {
		if v, ok := p.Integer(n, "on_abort", 0, store.MaxLimit); ok {
			after.Abort, after.AbortCost = rules.AbortFixed, v
		}
		return
	}
	word, _ := p.Choice(n, "on_abort", rules.AbortLargest.String(), rules.AbortEstimate.String())
	if word == rules.AbortEstimate.String() {
		after.Abort = rules.AbortEstimate
	}
}
