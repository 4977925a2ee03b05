package ownform

import (
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// distinctKeys are the keys of a rule that counts values.
func (p *Parser) distinctKeys() []form.Row {
	return []form.Row{
		{
			Key: "count", Doc: "How many different values of the attribute in of a key shows, in windows as by fixed_window, instead of requests.", See: "more/distinct.md",
			Type: form.OneOf(new(string), headgate.Distinct.String()).Or("requests"),
		},
		{Key: "of", Doc: "The attribute whose different values count.", Type: form.Ref("attribute").Is("an attribute")},
	}
}

func distinctNames() []string { return form.Keys(new(Parser).distinctKeys()) }

// ofExample is the hint where the attribute is missing or wrong.
const ofExample = `for example of: "header:X-User"`

// readCount reads count, which stands in place of an algorithm.
func (l *LimitForm) readCount() {
	field, ok := l.Keys["count"]
	if !ok {
		return
	}
	if word, _ := l.Choice(field.Value, "count", headgate.Distinct.String()); word == "" {
		return
	}
	if other, ok := l.Keys["algorithm"]; ok {
		l.Errorf(other.Key, "remove it: values are counted in windows, as by fixed_window", "\"algorithm\" cannot be combined with count: distinct")
	}
	if !yamltext.HasKey(l.At, "of") && l.Keys.Get("of") == nil {
		l.Errorf(field.Key, ofExample, "count: distinct needs \"of\", the attribute whose values are counted")
	}
	l.Algorithm = headgate.Distinct
}

// parseDistinct reads of, whose values a rule with count: distinct counts, and refuses what
// such a rule cannot have. The limit and the key of r must be known.
func (p *Parser) parseDistinct(f yamltext.Fields, r *rules.Rule) {
	n := f.Get("of")
	_, counts := f["count"]
	switch {
	case n != nil && !counts:
		p.Errorf(f["of"].Key, "add count: distinct", "\"of\" has no effect without count: distinct")
		return
	case n == nil || !counts:
		return
	}
	if field, ok := f["cost"]; ok {
		p.Errorf(field.Key, "remove it", "\"cost\" does not work with count: distinct: every new value costs 1")
	}
	if r.OnLimit.Action == rules.Queue {
		p.Errorf(f["on_limit"].Key, "use reject or shadow_ban", "action: queue does not work with count: distinct: waiting does not make a value known")
	}
	text, ok := p.Word(n, "of")
	if !ok {
		return
	}
	a, err := rules.ParseAttribute(text)
	if err != nil {
		p.Errorf(n, "", "%v", err)
		return
	}
	if slices.ContainsFunc(r.Key, func(k rules.KeyAttribute) bool { return k.Plain() == (rules.KeyAttribute{Attribute: a}) }) {
		p.Errorf(n, "count the values of another attribute, or remove it from the key", "%s is part of the key: each key has only one value of it", clip.Quote(text))
		return
	}
	p.CheckEntry(n, a)
	r.Values = &rules.Values{Of: a}
}
