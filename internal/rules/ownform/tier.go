package ownform

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// maxTiers is how many tiers one limit may have.
const maxTiers = 64

// tierKeys are the keys of one tier: those of a limit that may differ.
func (p *Parser) tierKeys() form.Mapping {
	rf := ruleForm{rule: NewRule("", "", &yamltext.Node{})}
	rows := []form.Row{
		{Key: "is", Doc: "The values that choose this tier.", Type: form.Many("tierValue").Is("a value, or a list").Or("its name")},
		{Key: "mode", Doc: "shadow: count and report, but refuse nothing.", Type: p.mode(rf.rule)},
	}
	rows = append(rows, p.SharedKeys(rf.rule)...)
	rows = append(rows, p.slotKeys(new(int64), new(time.Duration))...)
	rows = append(rows, p.limitKeys(&rf)...)
	for i := range rows {
		rows[i].Only = nil // the limit may have the algorithm
	}
	return form.Mapping{Def: "tier", Doc: "The settings of a tier that differ from the limit.", Rows: rows, Together: []string{concurrencyAlone(LimitKeys())}}
}

// tiersKeys are the keys of tiers that are not tiers.
func (t *tierForm) tiersKeys() form.Mapping {
	return form.Mapping{
		Def: "tiers", Doc: "Limits that differ by an attribute of the request, such as free and pro. Each tier inherits what it does not set. See docs/more/outcomes.md.", Rows: []form.Row{
			{
				Key: "by", Doc: "The attribute whose value chooses the tier.", Missing: ", the attribute that chooses the tier", Example: "for example by: \"header:X-Plan\"",
				Type: form.Ref("given").By("an attribute", t.readBy),
			},
			{Key: "default", Doc: "The tier of requests that match no other tier.", Type: form.Text(new(string)).By("the name of a tier", t.readDefault).Or("the limit's own rate")},
		},
		Extra: `"minProperties":2,"propertyNames":{"$ref":"#/$defs/name"},"additionalProperties":{"$ref":"#/$defs/tier"}`,
	}
}

// tier is one tier of a limit.
type tier struct {
	name   string
	at     *yamltext.Node // its key
	node   *yamltext.Node
	f      yamltext.Fields
	values []string // those of the attribute that choose it
}

// tierForm reads the tiers of one limit.
type tierForm struct {
	*Parser
	limit    *yamltext.Node  // the limit
	base     yamltext.Fields // its keys, without tiers
	by       rules.Attribute
	tiers    []tier
	standard int // the tier of requests that no tier is chosen for, or -1: then the limit's own rate is for them
}

// parseTiers reads a limit with tiers into one rule per tier. They share their counts,
// so that a client that changes its tier keeps its usage. Each applies to requests with
// its values of the attribute.
func (p *Parser) parseTiers(limit ruleForm) {
	t := tierForm{Parser: p, limit: limit.node, base: maps.Clone(limit.f), standard: -1}
	delete(t.base, "tiers")
	p.Once = map[diagnostic.Diagnostic]bool{} // what is wrong in the limit is so for every tier
	defer func() { p.Once = nil }()
	before := p.Errors
	t.read(limit.f.Get("tiers"))
	if p.Errors > before {
		return
	}
	limit.tiers = &t
	for i := range t.tiers {
		one := limit
		one.node, one.f = t.tiers[i].node, t.merged(&t.tiers[i])
		one.tier, one.standard = t.tiers[i].name, i == t.standard
		p.parseRule(one)
	}
	if t.standard < 0 {
		limit.f, limit.standard = t.base, true
		p.parseRule(limit)
	}
}

// read reads tiers.
func (t *tierForm) read(n *yamltext.Node) {
	if n.Kind != yamltext.Map {
		t.Errorf(n, "for example tiers: {by: \"header:X-Plan\", default: free, free: {rate: 10/minute}}", "\"tiers\" must be a mapping, not %s", n.Kind)
		return
	}
	rows, options := t.tiersKeys().Rows, yamltext.Fields{}
	taken, before := map[string]string{}, t.Errors
	for _, field := range n.Pairs {
		if slices.Contains(form.Keys(rows), field.Key.Text) {
			options[field.Key.Text] = field
		} else {
			t.readTier(field, taken)
		}
	}
	switch {
	case len(t.tiers) == 0 && t.Errors == before:
		t.Errorf(n, "", "\"tiers\" has no tiers")
	case len(t.tiers) > maxTiers:
		t.Errorf(n, "", "there are %d tiers, at most %d are allowed", len(t.tiers), maxTiers)
	}
	form.Need(t.Report, n, "tiers", rows)
	form.ReadFields(t.Report, options, rows)
	if _, ok := options["default"]; !ok && t.base.Get("rate") == nil && t.base.Get("concurrency") == nil && len(t.tiers) > 0 {
		t.Errorf(n, "add default: with the name of a tier, or give the limit its own rate", "requests without a tier would have no limit")
	}
}

// readBy reads the attribute that chooses the tier.
func (t *tierForm) readBy(n *yamltext.Node) {
	t.by, _ = t.attributeOf(n, "by", func(a rules.Attribute) (message, hint string) {
		return fmt.Sprintf("tiers cannot be chosen by %s", a), "use a separate limit with its own match for each"
	})
}

// readDefault reads which tier is for all others.
func (t *tierForm) readDefault(n *yamltext.Node) {
	name, ok := t.Word(n, "default")
	if !ok {
		return
	}
	var names []string
	for i := range t.tiers {
		names = append(names, t.tiers[i].name)
	}
	if t.standard = slices.Index(names, name); t.standard < 0 {
		t.Unknown(n, "tier", "", names, "")
	}
}

// readTier reads one of the tiers. taken are the values that have one.
func (t *tierForm) readTier(field yamltext.Pair, taken map[string]string) {
	name, ok := t.ruleName(field.Key)
	if !ok {
		return
	}
	one := tier{name: name, at: field.Key, node: field.Value}
	if field.Value.Kind == yamltext.Null {
		t.Errorf(field.Key, "", "%q has no value", name)
		return
	}
	one.f = t.Fields(field.Value, "the tier "+clip.Quote(name), t.Names("tier", func() []form.Row { return t.tierKeys().Rows }))
	values := []yamltext.Item{{Text: name, At: field.Key}}
	if n := one.f.Get("is"); n != nil {
		values = t.Texts(n, "is")
		delete(one.f, "is")
	}
	for _, v := range values {
		if !isLiteral(v.Text) {
			t.Errorf(v.At, "", "the value %s of a tier must not contain *", clip.Quote(v.Text))
			continue
		}
		if strings.HasPrefix(v.Text, "!") {
			t.Errorf(v.At, "requests without a tier get the limit's own rate", "the value %s of a tier must not be an exclusion", clip.Quote(v.Text))
			continue
		}
		if other, twice := taken[v.Text]; twice {
			t.Errorf(v.At, "", "the value %s already chooses the tier %s", clip.Quote(v.Text), clip.Quote(other))
			continue
		}
		taken[v.Text] = name
		one.values = append(one.values, v.Text)
	}
	t.tiers = append(t.tiers, one)
}

// isLiteral reports whether a text matches only itself.
func isLiteral(text string) bool {
	p, err := rules.ParseGlob(text)
	if err != nil {
		return false
	}
	_, ok := rules.TextOf(p)
	return ok
}

// merged returns the keys of a tier and those that it inherits from the limit, without
// keys that belong to another algorithm or rate than its own.
func (t *tierForm) merged(one *tier) yamltext.Fields {
	f := maps.Clone(t.base)
	if one.f.Get("algorithm") != nil {
		for _, key := range LimitKeys() {
			if key != "rate" && key != "period" {
				delete(f, key)
			}
		}
	}
	if n := one.f.Get("rate"); n != nil {
		delete(f, "period")
		if rate, err := rate.Parse(n.Text); err == nil && rate.Unlimited {
			for _, key := range append(append(LimitKeys(), distinctNames()...), "on_limit", "soft") {
				delete(f, key)
			}
		}
	}
	inheritLimit(f, one.f)
	maps.Copy(f, one.f)
	return f
}

// apply makes r the rule of its tier, and adds to all the condition that it is.
func (t *tierForm) apply(r *rules.Rule, m *rules.Match, all conditions, name string, standard bool) {
	v := rules.ValueMatch{Attribute: t.by, Tier: true}
	var l lists
	for i := range t.tiers {
		switch mine := t.tiers[i].name == name; {
		case standard && !mine:
			l.not = append(l.not, t.tiers[i].values...)
		case !standard && mine:
			l.any = append(l.any, t.tiers[i].values...)
		}
	}
	t.warnOfTier(m, name, l)
	v.Any, v.Not = literals(l.any), literals(l.not)
	m.Values = append(m.Values, v)
	r.Tier, r.TierBy = name, t.by
	all.add("tier by "+t.by.String(), l) // apart from what match asks of it
}

// literals returns patterns that are these texts.
func literals(texts []string) (all []rules.Pattern) {
	for _, text := range texts {
		all = append(all, rules.Literal(text))
	}
	return all
}

// warnOfTier warns about a tier that no request can be in, since match requires another
// value of the attribute.
func (t *tierForm) warnOfTier(m *rules.Match, name string, l lists) {
	for i := range m.Values {
		c := &m.Values[i]
		if c.Attribute != t.by {
			continue
		}
		alive := false
		if len(l.any) > 0 {
			for _, text := range l.any {
				alive = alive || c.Presence != rules.Absent && c.Holds(text)
			}
		} else {
			// All others: dead if match lists values, all of them of tiers.
			alive = len(c.Any) == 0
			for _, p := range c.Any {
				text, literal := rules.TextOf(p)
				alive = alive || !literal || !slices.Contains(l.not, text)
			}
		}
		if alive {
			continue
		}
		if name == "" {
			t.Warnf(t.base.Get("rate"), "", "the limit's own rate never applies: match allows only values of %s that have a tier", clip.Quote(t.by.String()))
			continue
		}
		for i := range t.tiers {
			if t.tiers[i].name == name {
				t.Warnf(t.tiers[i].at, "", "the tier %s can never apply: match allows only other values of %s", clip.Quote(name), clip.Quote(t.by.String()))
			}
		}
	}
}
