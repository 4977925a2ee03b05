package rules

import (
	"net/textproto"

	"github.com/headgate/headgate"
)

// CostAfter says where the response of the upstream tells what a request has
// taken, for doors that see it.
type CostAfter struct {
	// Header is the header field or, of a stream, the trailer, in its canonical
	// form. It holds a whole number.
	Header string
	// CancelErrors gives the estimate back if the upstream did not answer, or
	// with a status from 500 on.
	CancelErrors bool
}

// Cost returns what the text of the field comes to, and false if it is no whole
// number from 0 to headgate.MaxLimit.
func (c *CostAfter) Cost(text string) (int64, bool) {
	from := CostFrom{Max: headgate.MaxLimit + 1}
	n := from.cost(value{textproto.TrimString(text), true})
	return n, n <= headgate.MaxLimit
}

func costAfterKeys() []string { return []string{"estimate", "from_response", "on_error"} }

// parseCostAfter reads a cost that the response tells.
func (p *parser) parseCostAfter(at *node, f fields, r *Rule) {
	for _, key := range []string{"from", "default", "min", "max"} {
		if field, ok := f[key]; ok {
			p.errorf(field.key, "", "%q has no meaning beside from_response", key)
		}
	}
	from := f.get("from_response")
	if from == nil {
		p.errorf(at, "for example from_response: X-Tokens-Used", "\"from_response\" is missing in cost")
		return
	}
	name, ok := p.word(from, "from_response")
	if !ok {
		return
	}
	if name == "" || !isToken(name) {
		p.errorf(from, "", "%s is no name of a header field", quote(name))
		return
	}
	after := &CostAfter{Header: textproto.CanonicalMIMEHeaderKey(name)}
	if n := f.get("on_error"); n != nil {
		word, _ := p.choice(n, "on_error", "keep", "cancel")
		after.CancelErrors = word == "cancel"
	}
	if n := f.get("estimate"); n != nil {
		if v, ok := p.integer(n, "estimate", 1, headgate.MaxLimit); ok {
			r.Cost = v
		}
	}
	if r.Concurrent() {
		p.errorf(from, "", "a place is held until the response is done: it has no cost that is known only then")
		return
	}
	r.CostAfter = after
}
