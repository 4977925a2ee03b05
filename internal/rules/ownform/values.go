package ownform

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// maxConditions is the maximum number of attribute conditions in a rule.
const maxConditions = 64

// ValueSections yields the keys of match whose values are mappings from names
// to conditions, and the kind of attribute that they name.
func ValueSections() iter.Seq2[string, rules.AttributeKind] {
	return func(yield func(string, rules.AttributeKind) bool) {
		_ = yield("headers", rules.Header) && yield("query", rules.Query) && yield("cookies", rules.Cookie) &&
			yield("jwt", rules.JWT) && yield("attributes", rules.Other)
	}
}

// parseValues reads one of those mappings, and adds its conditions to all.
func (p *Parser) parseValues(n *yamltext.Node, key string, kind rules.AttributeKind, m *rules.Match, all conditions) {
	if n.Kind != yamltext.Map {
		p.Errorf(n, "", "%q must be a mapping (name: value), not %s", key, n.Kind)
		return
	}
	if len(m.Values)+len(n.Pairs) > maxConditions {
		p.Errorf(n, "", "the rule has more than %d attribute conditions", maxConditions)
		return
	}
	for _, field := range n.Pairs {
		a, err := ValueAttribute(kind, field.Key.Text)
		if err != nil {
			p.Errorf(field.Key, "", "%v", err)
			continue
		}
		p.CheckEntry(field.Key, a)
		if slices.ContainsFunc(m.Values, func(v rules.ValueMatch) bool { return v.Attribute == a }) {
			p.Errorf(field.Key, "put all values in one list", "%s is given twice", clip.Quote(a.String()))
			continue
		}
		v := rules.ValueMatch{Attribute: a}
		all.add(a.String(), p.parseValue(field.Value, &v))
		m.Values = append(m.Values, v)
	}
}

// ValueAttribute returns the attribute that a name in a section means. The
// names under attributes may be of any kind that has no section key of match.
func ValueAttribute(kind rules.AttributeKind, name string) (rules.Attribute, error) {
	if kind != rules.Other {
		return rules.NamedAttribute(kind, name)
	}
	a, err := rules.ParseAttribute(name)
	if err != nil {
		return a, err
	}
	switch a.Kind {
	case rules.Method, rules.Path, rules.Host, rules.ClientIP:
		return a, fmt.Errorf("%q belongs directly under match, not under attributes", name)
	case rules.Other, rules.Header, rules.Query, rules.Cookie, rules.JWT:
	}
	return a, nil
}

// parseValue reads the condition on one attribute: a value or a list of them,
// or a mapping with present or not.
func (p *Parser) parseValue(n *yamltext.Node, v *rules.ValueMatch) lists {
	name := v.String()
	if n.Kind != yamltext.Map {
		l := p.valueTexts(n, name, v)
		p.warnExcluded(n, name, l)
		return l
	}
	var l lists
	f := p.Fields(n, clip.Quote(name), form.Keys(p.conditionKeys(v, &l)))
	form.ReadFields(p.Report, f, p.conditionKeys(v, &l))
	if v.Presence == rules.Absent && len(v.Any) > 0 {
		p.Warnf(f.Get("present"), "", "the rule can never match: %s cannot both be absent and have a value", clip.Quote(name))
	}
	if len(n.Pairs) == 0 {
		p.Errorf(n, "", "the condition on %s is empty", clip.Quote(name))
	}
	p.warnExcluded(n, name, l)
	l.presence = v.Presence
	return l
}

// conditionKeys are the keys of a condition on one attribute.
func (p *Parser) conditionKeys(v *rules.ValueMatch, l *lists) []form.Row {
	name := v.String()
	return []form.Row{
		{Key: "is", Doc: "The same as the value alone.", Type: form.Ref("globs").By("values", func(n *yamltext.Node) { *l = p.valueTexts(n, name, v) })},
		{Key: "not", Doc: "None of these values. Also holds for a request without the attribute.", Type: form.Ref("globs").By("values", func(n *yamltext.Node) {
			not, sources := p.globs(n, name)
			v.Not, l.not = append(v.Not, not...), append(l.not, sources...)
		})},
		{Key: "present", Doc: "true: it must be there, even if empty. false: it must be missing.", Type: form.Type{Schema: `"type":"boolean"`}.By("`true`, `false`", func(n *yamltext.Node) {
			switch yes, ok := p.Boolean(n, "present"); {
			case !ok:
			case yes:
				v.Presence = rules.Present
			default:
				v.Presence = rules.Absent
			}
		})},
	}
}

// valueTexts reads one value or a list of them into v. Those that start with ! are
// exclusions, as in every list of match.
func (p *Parser) valueTexts(n *yamltext.Node, name string, v *rules.ValueMatch) lists {
	var l lists
	p.eachGlob(n, name, func(item *yamltext.Node) {
		source, exclude := strings.CutPrefix(item.Text, "!")
		g, ok := p.glob(item, name, source)
		switch {
		case !ok:
		case exclude:
			v.Not, l.not = append(v.Not, g), append(l.not, source)
		default:
			v.Any, l.any = append(v.Any, g), append(l.any, source)
		}
	})
	return l
}

// globs reads one value or a list of them where nothing can be excluded.
func (p *Parser) globs(n *yamltext.Node, name string) (made []rules.Pattern, sources []string) {
	p.eachGlob(n, name, func(item *yamltext.Node) {
		if strings.HasPrefix(item.Text, "!") {
			p.Errorf(item, "write "+clip.Quote(`\`+item.Text)+" for a value that starts with !", "%s is an exclusion, which does not work here", clip.Quote(item.Text))
			return
		}
		if g, ok := p.glob(item, name, item.Text); ok {
			made, sources = append(made, g), append(sources, item.Text)
		}
	})
	return made, sources
}

// glob reads one value.
func (p *Parser) glob(at *yamltext.Node, name, source string) (rules.Pattern, bool) {
	g, err := rules.ParseGlob(source)
	if err != nil {
		p.Errorf(at, "", "the value %v", err)
		return nil, false
	}
	p.warnOfValue(source, name, at)
	return g, true
}

// eachGlob calls each for one value or those of a list. Numbers are taken as written.
// true and false are errors, since they could mean the value or its presence.
func (p *Parser) eachGlob(n *yamltext.Node, name string, each func(item *yamltext.Node)) {
	items := []*yamltext.Node{n}
	if n.Kind == yamltext.List {
		items = n.Items
		if len(items) == 0 {
			p.Errorf(n, "", "the list of values of %s is empty", clip.Quote(name))
		}
	}
	for _, item := range items {
		switch item.Kind {
		case yamltext.Text, yamltext.Number:
			each(item)
		case yamltext.Bool:
			p.Errorf(item, fmt.Sprintf("write %q in quotes for the value, or {present: %s}", item.Text, item.Text), "%s must be text, not true or false", clip.Quote(name))
		case yamltext.Null:
			p.Errorf(item, "write \"\" for an empty value, or {present: true}", "%s has no value", clip.Quote(name))
		case yamltext.List, yamltext.Map:
			p.Errorf(item, "", "a value of %s must be text, not %s", clip.Quote(name), item.Kind)
		}
	}
}
