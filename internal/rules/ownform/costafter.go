package ownform

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

func costAfterKeys() []string { return []string{"estimate", "from_response", "on_error", "on_abort"} }

// parseCostAfter reads a cost that the response tells.
func (p *Parser) parseCostAfter(at *yamltext.Node, f yamltext.Fields, r *rules.Rule) {
	for _, key := range []string{"from", "default", "min", "max"} {
		if field, ok := f[key]; ok {
			p.Errorf(field.Key, "", "%q has no meaning beside from_response", key)
		}
	}
	from := f.Get("from_response")
	if from == nil {
		p.Errorf(at, "for example from_response: X-Tokens-Used", "\"from_response\" is missing in cost")
		return
	}
	name, ok := p.Word(from, "from_response")
	if !ok {
		return
	}
	canonical, ok := rules.CanonicalHeader(name)
	if !ok {
		p.Errorf(from, "", "%s is no name of a header field", clip.Quote(name))
		return
	}
	after := &rules.CostAfter{Header: canonical, CancelErrors: p.ChoiceOf(f, "on_error", "keep", "cancel") == "cancel"}
	if n := f.Get("on_abort"); n != nil {
		p.parseAbort(n, after)
	}
	p.IntegerOf(f, "estimate", 1, headgate.MaxLimit, &r.Cost)
	if r.Concurrent() {
		p.Errorf(from, "", "a place is held until the response is done: it has no cost that is known only then")
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
