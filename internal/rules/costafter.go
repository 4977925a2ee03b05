package rules

import (
	"fmt"
	"net/textproto"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

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
	AbortLargest Abort = iota
	// AbortEstimate is the estimate.
	AbortEstimate
	// AbortFixed is a number.
	AbortFixed
)

// String returns the word that rules use.
func (a Abort) String() string {
	switch a {
	case AbortLargest:
		return "largest"
	case AbortEstimate:
		return "estimate"
	case AbortFixed:
		return "fixed"
	}
	return fmt.Sprintf("abort(%d)", uint8(a))
}

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

func costAfterKeys() []string { return []string{"estimate", "from_response", "on_error", "on_abort"} }

// parseCostAfter reads a cost that the response tells.
func (p *parser) parseCostAfter(at *yamltext.Node, f yamltext.Fields, r *Rule) {
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
	if name == "" || !isToken(name) {
		p.Errorf(from, "", "%s is no name of a header field", clip.Quote(name))
		return
	}
	after := &CostAfter{Header: textproto.CanonicalMIMEHeaderKey(name)}
	if n := f.Get("on_error"); n != nil {
		word, _ := p.Choice(n, "on_error", "keep", "cancel")
		after.CancelErrors = word == "cancel"
	}
	if n := f.Get("on_abort"); n != nil {
		p.parseAbort(n, after)
	}
	if n := f.Get("estimate"); n != nil {
		if v, ok := p.Integer(n, "estimate", 1, headgate.MaxLimit); ok {
			r.Cost = v
		}
	}
	if r.Concurrent() {
		p.Errorf(from, "", "a place is held until the response is done: it has no cost that is known only then")
		return
	}
	r.CostAfter = after
}

// parseAbort reads on_abort: a word or a number.
func (p *parser) parseAbort(n *yamltext.Node, after *CostAfter) {
	if n.Kind == yamltext.Number {
		if v, ok := p.Integer(n, "on_abort", 0, headgate.MaxLimit); ok {
			after.Abort, after.AbortCost = AbortFixed, v
		}
		return
	}
	word, _ := p.Choice(n, "on_abort", AbortLargest.String(), AbortEstimate.String())
	if word == AbortEstimate.String() {
		after.Abort = AbortEstimate
	}
}
