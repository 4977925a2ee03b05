package rules

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// problemf is an error that is shown to the user as it is.
func problemf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// maxConditions is on how many attributes a rule may have conditions.
const maxConditions = 64

// valueSections yields the keys of match whose values are mappings from names
// to conditions, and the kind of attribute that they name.
func valueSections() iter.Seq2[string, AttributeKind] {
	return func(yield func(string, AttributeKind) bool) {
		_ = yield("headers", Header) && yield("query", Query) && yield("cookies", Cookie) &&
			yield("jwt", JWT) && yield("attributes", Other)
	}
}

// parseValues reads one of those mappings.
func (p *parser) parseValues(n *yamltext.Node, key string, kind AttributeKind, m *matcher) []string {
	if n.Kind != yamltext.Map {
		p.Errorf(n, "", "%q must be a mapping of names to values, not %s", key, n.Kind)
		return nil
	}
	if len(m.values)+len(n.Pairs) > maxConditions {
		p.Errorf(n, "", "the rule has more than %d conditions on attributes", maxConditions)
		return nil
	}
	var conditions []string
	for _, field := range n.Pairs {
		a, err := p.valueAttribute(kind, field.Key.Text)
		if err != nil {
			p.Errorf(field.Key, "", "%v", err)
			continue
		}
		p.checkEntry(field.Key, a)
		if slices.ContainsFunc(m.values, func(v valueMatch) bool { return v.attribute == a }) {
			p.Errorf(field.Key, "list the values under one of them", "%s is given twice", clip.Quote(a.String()))
			continue
		}
		v := valueMatch{attribute: a}
		conditions = append(conditions, p.parseValue(field.Value, &v)...)
		m.values = append(m.values, v)
	}
	return conditions
}

// valueAttribute returns the attribute that a name in a section means. The
// names under attributes may be of any kind that has no section key of match.
func (p *parser) valueAttribute(kind AttributeKind, name string) (Attribute, error) {
	if kind != Other {
		return namedAttribute(kind, name)
	}
	a, err := ParseAttribute(name)
	if err != nil {
		return a, err
	}
	switch a.Kind {
	case Method, Path, Host, ClientIP:
		return a, problemf("%q stands under match itself, not under attributes", name)
	case Other, Header, Query, Cookie, JWT:
	}
	return a, nil
}

// parseValue reads the condition on one attribute: a value or a list of them,
// or a mapping with present or not.
func (p *parser) parseValue(n *yamltext.Node, v *valueMatch) []string {
	name := v.attribute.String()
	if n.Kind != yamltext.Map {
		l := p.valueTexts(n, name, v)
		p.warnExcluded(n, name, l)
		return l.conditions(name)
	}
	f := p.Fields(n, clip.Quote(name), []string{"present", "is", "not"})
	var l lists
	if n := f.Get("is"); n != nil {
		l = p.valueTexts(n, name, v)
	}
	if n := f.Get("not"); n != nil {
		not, sources := p.globs(n, name)
		v.not = newPatternList(slices.Concat(v.not.all, not))
		l.not = append(l.not, sources...)
	}
	out := l.conditions(name)
	if n := f.Get("present"); n != nil {
		yes, ok := p.Boolean(n, "present")
		switch {
		case !ok:
		case yes:
			v.presence = present
			out = append(out, condition(name, "present"))
		default:
			v.presence = absent
			out = append(out, condition(name, "absent"))
			if len(v.any.all) > 0 {
				p.Warnf(n, "", "the rule can never match: %s is to be absent and to have a value", clip.Quote(name))
			}
		}
	}
	if len(n.Pairs) == 0 {
		p.Errorf(n, "", "the condition on %s is empty", clip.Quote(name))
	}
	p.warnExcluded(n, name, l)
	return out
}

func (l lists) conditions(name string) []string {
	var out []string
	for _, text := range l.any {
		out = append(out, condition(name, "is", text))
	}
	for _, text := range l.not {
		out = append(out, condition(name, "not", text))
	}
	return out
}

// valueTexts reads one value or a list of them into v. Those that begin with !
// are excluded, as in every other list of match.
func (p *parser) valueTexts(n *yamltext.Node, name string, v *valueMatch) lists {
	var l lists
	var any, not []pattern
	p.eachGlob(n, name, func(item *yamltext.Node) {
		source, exclude := strings.CutPrefix(item.Text, "!")
		g, ok := p.glob(item, name, source)
		switch {
		case !ok:
		case exclude:
			not, l.not = append(not, g), append(l.not, source)
		default:
			any, l.any = append(any, g), append(l.any, source)
		}
	})
	v.any, v.not = newPatternList(any), newPatternList(not)
	return l
}

// globs reads one value or a list of them where nothing can be excluded.
func (p *parser) globs(n *yamltext.Node, name string) (made []pattern, sources []string) {
	p.eachGlob(n, name, func(item *yamltext.Node) {
		if strings.HasPrefix(item.Text, "!") {
			p.Errorf(item, "write "+clip.Quote(`\`+item.Text)+" for a value that begins with !", "%s excludes, which has no meaning here", clip.Quote(item.Text))
			return
		}
		if g, ok := p.glob(item, name, item.Text); ok {
			made, sources = append(made, g), append(sources, item.Text)
		}
	})
	return made, sources
}

// glob reads one value.
func (p *parser) glob(at *yamltext.Node, name, source string) (*glob, bool) {
	g, err := parseGlob(source)
	if err != nil {
		p.Errorf(at, "", "the value %v", err)
		return nil, false
	}
	p.warnOfValue(source, name, at)
	return &g, true
}

// eachGlob calls each for one value or those of a list. Numbers stand for their
// digits as written; true and false could be meant as the value or as being
// present, so they have to say which.
func (p *parser) eachGlob(n *yamltext.Node, name string, each func(item *yamltext.Node)) {
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
