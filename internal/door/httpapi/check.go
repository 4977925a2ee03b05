package httpapi

import (
	"errors"
	"fmt"

	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/inline"
	"github.com/headgate/headgate/store"
)

// keptAttributes is the number of attributes for which a check keeps its memory.
const keptAttributes = 32

// reset clears c for the next check, keeping its memory.
func reset(c *described.Check) {
	c.Reset(keptAttributes) // releases the body's text
	c.Domain, c.Cost, c.Kind, c.Rule, c.Key = "", 1, store.KindTake, nil, ""
}

// body is the body of POST /v1/check: one check, or a batch of them.
type body struct {
	batch  bool
	checks []described.Check
	asks   asks // of the check that is being read
}

// add appends an empty check to b.checks and returns it.
func (b *body) add() *described.Check {
	if n := len(b.checks); n < cap(b.checks) {
		b.checks = b.checks[:n+1]
	} else {
		b.checks = append(b.checks, described.Check{})
	}
	c := &b.checks[len(b.checks)-1]
	reset(c)
	return c
}

var errAlone = errors.New(`"checks" must be the only field: put domain, attributes, cost and peek into each check`)

// parse reads text into b, replacing its content. clients groups client addresses;
// limits makes rules of limits in checks.
func (b *body) parse(text string, clients *client.Resolver, limits *inline.Limits) error {
	b.batch, b.checks = false, b.checks[:0]
	p := &parser{text: text, clients: clients, asks: &b.asks}
	p.asks.limits = limits
	p.asks.begin()
	var s seen
	single := b.add()
	err := p.object("the body", func(name string) error {
		if name != "checks" {
			return p.member(single, name, &s, `, "checks"`)
		}
		if err := s.add(p, seenChecks, name); err != nil {
			return err
		}
		b.batch = true
		return p.array(`"checks"`, func(i int) error {
			if i == described.MaxChecks {
				return p.fail(`"checks" must have at most %d elements`, described.MaxChecks)
			}
			if err := p.check(b.add()); err != nil {
				return fmt.Errorf("checks[%d]: %w", i, err)
			}
			return nil
		})
	})
	if err == nil {
		err = p.end()
	}
	switch {
	case err != nil:
		return err
	case b.batch && s != seenChecks:
		return errAlone
	case b.batch:
		// Only now, since appending may have moved them.
		b.checks = rotate(b.checks)
		return nil
	}
	return p.finish(single, s)
}

// rotate moves the unused first check past the end, keeping its memory.
func rotate(checks []described.Check) []described.Check {
	first := checks[0]
	copy(checks, checks[1:])
	checks[len(checks)-1] = first
	return checks[:len(checks)-1]
}

// check reads one element of a batch.
func (p *parser) check(c *described.Check) error {
	var s seen
	p.asks.begin()
	if err := p.object("a check", func(name string) error { return p.member(c, name, &s, "") }); err != nil {
		return err
	}
	return p.finish(c, s)
}

// seen is the set of names already read in an object.
type seen uint8

const (
	seenDomain seen = 1 << iota
	seenAttributes
	seenCost
	seenPeek
	seenChecks
	seenInline // the id, or a field of its limit
)

func (s *seen) add(p *parser, name seen, text string) error {
	if *s&name != 0 {
		return p.fail("duplicate field %q", text)
	}
	*s |= name
	return nil
}

// member reads one member of a check. more lists further accepted names, for the
// error message.
func (p *parser) member(c *described.Check, name string, s *seen, more string) (err error) {
	switch name {
	case "domain":
		if err = s.add(p, seenDomain, name); err == nil {
			c.Domain, err = p.string(`"domain"`)
		}
	case "attributes":
		if err = s.add(p, seenAttributes, name); err == nil {
			err = p.object(`"attributes"`, func(name string) error { return p.attribute(c, name) })
		}
	case "cost":
		if err = s.add(p, seenCost, name); err == nil {
			c.Cost, err = p.whole("cost")
		}
	case "peek":
		var peek bool
		if err = s.add(p, seenPeek, name); err == nil {
			peek, err = p.boolean(`"peek"`)
		}
		if peek {
			c.Kind = store.KindPeek
		}
	default:
		err = p.unknown(name, s, more)
	}
	return err
}

// attribute reads the value of the attribute name.
func (p *parser) attribute(c *described.Check, name string) error {
	a, err := rules.ParseAttribute(name)
	if err != nil {
		return p.fail("attribute %q: %s", name, err)
	}
	if _, twice := c.Attribute(a); twice {
		return p.fail("duplicate attribute %q", name)
	}
	if c.Len() == described.MaxAttributes {
		return p.fail("a check must have at most %d attributes", described.MaxAttributes)
	}
	if p.next() != '"' {
		return p.fail("attribute %q must be a string, found %s: put it in quotes", name, p.found())
	}
	value, err := p.string("the attribute's value")
	if err != nil {
		return err
	}
	if must := c.Add(a, value, p.clients); must != "" {
		return p.fail("attribute %q %s, not %.64q", name, must, value)
	}
	return nil
}

// finish checks that c is complete.
func (p *parser) finish(c *described.Check, s seen) error {
	if s&seenInline != 0 {
		return p.finishInline(c, s)
	}
	if s&seenDomain == 0 {
		return errors.New(`"domain" is missing`)
	}
	if c.Domain == "" {
		return errors.New(`"domain" must not be empty`)
	}
	return nil
}

// release frees the memory of a very large body.
func (b *body) release() {
	if cap(b.checks) > 16 {
		b.checks = nil
	}
	for i := range b.checks {
		reset(&b.checks[i])
	}
	b.asks.begin()
}
