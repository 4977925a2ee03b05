package rules

import (
	"fmt"
	"iter"
	"slices"
	"strings"
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
func (p *parser) parseValues(n *node, key string, kind AttributeKind, m *matcher) []string {
	if n.kind != mapKind {
		p.errorf(n, "", "%q must be a mapping of names to values, not %s", key, n.kind)
		return nil
	}
	if len(m.values)+len(n.pairs) > maxConditions {
		p.errorf(n, "", "the rule has more than %d conditions on attributes", maxConditions)
		return nil
	}
	var conditions []string
	for _, field := range n.pairs {
		a, err := p.valueAttribute(kind, field.key.text)
		if err != nil {
			p.errorf(field.key, "", "%v", err)
			continue
		}
		p.checkEntry(field.key, a)
		if slices.ContainsFunc(m.values, func(v valueMatch) bool { return v.attribute == a }) {
			p.errorf(field.key, "list the values under one of them", "%s is given twice", quote(a.String()))
			continue
		}
		v := valueMatch{attribute: a}
		conditions = append(conditions, p.parseValue(field.value, &v)...)
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
func (p *parser) parseValue(n *node, v *valueMatch) []string {
	name := v.attribute.String()
	if n.kind != mapKind {
		l := p.valueTexts(n, name, v)
		p.warnExcluded(n, name, l)
		return l.conditions(name)
	}
	f := p.fields(n, quote(name), []string{"present", "is", "not"})
	var l lists
	if n := f.get("is"); n != nil {
		l = p.valueTexts(n, name, v)
	}
	if n := f.get("not"); n != nil {
		not, sources := p.globs(n, name)
		v.not = newPatternList(slices.Concat(v.not.all, not))
		l.not = append(l.not, sources...)
	}
	out := l.conditions(name)
	if n := f.get("present"); n != nil {
		yes, ok := p.boolean(n, "present")
		switch {
		case !ok:
		case yes:
			v.presence = present
			out = append(out, condition(name, "present"))
		default:
			v.presence = absent
			out = append(out, condition(name, "absent"))
			if len(v.any.all) > 0 {
				p.warnf(n, "", "the rule can never match: %s is to be absent and to have a value", quote(name))
			}
		}
	}
	if len(n.pairs) == 0 {
		p.errorf(n, "", "the condition on %s is empty", quote(name))
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
func (p *parser) valueTexts(n *node, name string, v *valueMatch) lists {
	var l lists
	var any, not []pattern
	p.eachGlob(n, name, func(item *node) {
		source, exclude := strings.CutPrefix(item.text, "!")
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
func (p *parser) globs(n *node, name string) (made []pattern, sources []string) {
	p.eachGlob(n, name, func(item *node) {
		if strings.HasPrefix(item.text, "!") {
			p.errorf(item, "write "+quote(`\`+item.text)+" for a value that begins with !", "%s excludes, which has no meaning here", quote(item.text))
			return
		}
		if g, ok := p.glob(item, name, item.text); ok {
			made, sources = append(made, g), append(sources, item.text)
		}
	})
	return made, sources
}

// glob reads one value.
func (p *parser) glob(at *node, name, source string) (*glob, bool) {
	g, err := parseGlob(source)
	if err != nil {
		p.errorf(at, "", "the value %v", err)
		return nil, false
	}
	p.warnOfValue(source, name, at)
	return &g, true
}

// eachGlob calls each for one value or those of a list. Numbers stand for their
// digits as written; true and false could be meant as the value or as being
// present, so they have to say which.
func (p *parser) eachGlob(n *node, name string, each func(item *node)) {
	items := []*node{n}
	if n.kind == listKind {
		items = n.items
		if len(items) == 0 {
			p.errorf(n, "", "the list of values of %s is empty", quote(name))
		}
	}
	for _, item := range items {
		switch item.kind {
		case textKind, numberKind:
			each(item)
		case boolKind:
			p.errorf(item, fmt.Sprintf("write %q in quotes for the value, or {present: %s}", item.text, item.text), "%s must be text, not true or false", quote(name))
		case nullKind:
			p.errorf(item, "write \"\" for an empty value, or {present: true}", "%s has no value", quote(name))
		case listKind, mapKind:
			p.errorf(item, "", "a value of %s must be text, not %s", quote(name), item.kind)
		}
	}
}
