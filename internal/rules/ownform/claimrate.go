package ownform

import (
	"fmt"
	"maps"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

const exampleClaim = `for example rate: {from: "jwt:rate", max: 1000/minute, default: 100/minute}`

// claimForm is a rate that a verified claim gives. It shares its default, and how limits
// are made of rates, with tables.
type claimForm struct {
	*tableForm
	from rules.Attribute
	max  *yamltext.Node
}

// readClaim reads the keys of a rate that a claim gives.
func (t *tableForm) readClaim(n *yamltext.Node, inner yamltext.Fields) {
	from := inner.Get("from")
	t.claim, t.at = &claimForm{tableForm: t, max: inner.Get("max")}, from
	if table, ok := inner["table"]; ok {
		t.Errorf(table.Key, "remove one of them", "rate has both \"from\" and \"table\"")
	}
	if t.claim.max == nil && !yamltext.HasKey(n, "max") {
		t.Errorf(n, exampleClaim, "rate has no \"max\", the most that a claim may give")
	}
	text, ok := t.Word(from, "from")
	if !ok {
		return
	}
	a, err := rules.ParseAttribute(text)
	switch {
	case err != nil:
		t.Errorf(from, "", "%v", err)
	case a.Kind != rules.JWT:
		t.Errorf(from, exampleClaim, "a rate must come from a verified claim, not from %s, which clients could set", a)
	default:
		t.CheckEntry(from, a)
		t.claim.from = a
	}
}

// check makes sure that the rule can take its rate from a claim.
func (c *claimForm) check() {
	if c.rule.KeyParts() == 0 {
		c.Errorf(c.at, `add a key, such as key: "jwt:sub"`, "a rate from a claim needs a key: it is for a single client")
	}
}

// finish gives the rule its limits, once everything else is known.
func (c *claimForm) finish() {
	report := c.Parser
	// From here on, limits are made while requests are decided, at the same time.
	c.limitNames()
	c.Parser = &Parser{Report: &yamltext.Report{}, zones: maps.Clone(c.zones), names: maps.Clone(c.names)}
	if c.max.Kind != yamltext.Text && c.max.Kind != yamltext.Number {
		report.Errorf(c.max, "", "\"max\" must be N/unit, such as 1000/minute, not %s", c.max.Kind)
		return
	}
	most, err := c.of(c.max.Text)
	switch {
	case err != nil:
		report.Errorf(c.max, "", "max: %v", err)
		return
	case most.Rule().Unlimited:
		report.Errorf(c.max, exampleClaim, "\"max\" must not be unlimited")
		return
	case rules.IsMore(c.others, most):
		report.Errorf(c.max, "a request without the claim must not get more than one with it", "the default, %s, is more than max, %s", c.others, most)
		return
	}
	g := c.rule.GivenBy()
	if g == nil {
		g = &rules.Given{}
		report.Rules.SetGiven(c.rule, g)
	}
	g.Rate = &rules.GivenRate{From: c.from, Max: most, Shape: c.table.Shape, Limit: c.of, More: c.isMoreThan(most)}
	c.rule.Limit = c.others
}

// of returns the limit of the rule with another rate. It is safe for concurrent use.
func (c *claimForm) of(text string) (headgate.Limit, error) {
	text = strings.TrimSpace(text)
	if isWord(text, deny) {
		return headgate.Limit{}, fmt.Errorf("%s is not a rate: write 0/minute", clip.Quote(text))
	}
	return c.limit(maps.Clone(c.f), text, "")
}

// isMoreThan returns whether a text is a rate that allows more than a limit of the rule,
// whether or not the rule's other options fit it. The burst of a bucket is the rule's.
func (c *claimForm) isMoreThan(most headgate.Limit) func(text string) bool {
	period := yamltext.Fields{}
	if p, ok := c.f["period"]; ok {
		period["period"] = p
	}
	return func(text string) bool {
		text = strings.TrimSpace(text)
		if isWord(text, unlimited) || isWord(text, deny) {
			return false
		}
		l, err := c.limit(maps.Clone(period), text, "")
		if most.Rule().AsBucket() != nil {
			l = l.WithBurst(1)
		}
		return err == nil && rules.IsMore(l, most)
	}
}
