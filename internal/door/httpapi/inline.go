package httpapi

import (
	"errors"
	"strings"

	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/rules/inline"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// asks reads checks that bring their own limit: an id and the fields of a limit.
type asks struct {
	limits  *inline.Limits // nil allows none
	request inline.Request
	id      string
	hasID   bool
}

// begin starts the next check.
func (a *asks) begin() {
	a.request.Reset()
	a.id, a.hasID = "", false
}

// unknown reads a member that only a check with its own limit has.
func (p *parser) unknown(name string, s *seen, more string) (err error) {
	switch {
	case p.asks == nil:
	case name == "id":
		if p.asks.hasID {
			return p.fail("duplicate field %q", name)
		}
		*s |= seenInline
		p.asks.hasID = true
		p.asks.id, err = p.string(`"id"`)
		return err
	case p.asks.limits.Reads(name):
		*s |= seenInline
		return p.limitField(name)
	case name == "checks":
		return p.fail(`a check in "checks" cannot have "checks" itself`)
	default:
		known := append([]string{"domain", "attributes", "cost", "peek", "id"}, inline.Fields()...)
		if near := nearest.DidYouMean(name, known); near != "" {
			return p.fail("unknown field %q%s", name, near)
		}
		more = `, and "id" with "` + strings.Join(inline.Fields(), `", "`) + `"` + more
	}
	return p.fail(`unknown field %q; known are "domain", "attributes", "cost", "peek"%s`, name, more)
}

// limitField reads a field of a limit.
func (p *parser) limitField(name string) (err error) {
	if p.asks.request.Has(name) {
		return p.fail("duplicate field %q", name)
	}
	c := p.next()
	f := inline.Field{Name: name, At: p.pos}
	switch {
	case c == '"':
		f.Kind = yamltext.Text
		f.Text, err = p.string("the field's value")
	case c == 't' || c == 'f':
		var yes bool
		f.Kind, f.Text = yamltext.Bool, "false"
		if yes, err = p.boolean(`"` + name + `"`); yes {
			f.Text = "true"
		}
	case c == '-' || c >= '0' && c <= '9':
		f.Kind = yamltext.Number
		f.Text, err = p.number()
	default:
		err = p.fail("%q must be a string, a number, true or false, found %s", name, p.found())
	}
	if err != nil {
		return err
	}
	return p.placed(p.asks.request.Add(f))
}

// number reads a number as it is written.
func (p *parser) number() (string, error) {
	start := p.pos
	for p.pos < len(p.text) && strings.IndexByte("0123456789+-.eE", p.text[p.pos]) >= 0 {
		p.pos++
	}
	if text := p.text[start:p.pos]; text != "-" {
		return text, nil
	}
	return "", p.fail("a number has no digits")
}

// finishInline makes c the check of an id under its own limit.
func (p *parser) finishInline(c *described.Check, s seen) (err error) {
	a := p.asks
	switch {
	case s&seenDomain != 0:
		return errors.New(`"id" and its limit cannot be combined with "domain": a check asks either the rules of a domain or its own limit`)
	case s&seenAttributes != 0:
		return errors.New(`"id" and its limit cannot be combined with "attributes": put what to count into "id"`)
	case !a.hasID:
		return errors.New(`"id" is missing: it says what the limit counts by`)
	}
	if c.Key, err = a.limits.Key(a.id); err == nil {
		c.Rule, err = a.limits.Rule(&a.request)
	}
	c.Domain = inline.Domain
	return p.placed(err)
}

// placed adds the position to an error about a limit.
func (p *parser) placed(err error) error {
	if e, ok := errors.AsType[*inline.Error](err); ok && e.At > 0 {
		return &syntaxError{offset: e.At, message: e.Error(), cause: err}
	}
	return err
}
