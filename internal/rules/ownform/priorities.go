package ownform

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/yamltext"
	"github.com/headgate/headgate/store"
)

// priorityKeys are the keys of priorities.
func (p *Parser) priorityKeys(c *rules.Priorities) form.Mapping {
	return form.Mapping{
		Def: "priorities", Doc: "The classes of the domain's requests, for headroom.",
		Rows: []form.Row{
			{
				Key: "classes", Doc: "The classes, the highest first. One is called default: it is that of requests for which nothing else chooses one.", Example: "for example classes: [critical, default, sheddable]",
				Type: form.Type{Schema: `"type":"array","minItems":2,"maxItems":16,"uniqueItems":true,"contains":{"const":"default"},"items":{"$ref":"#/$defs/name"}`}.
					By("`[critical, default, sheddable]`", func(n *yamltext.Node) { p.parseClasses(n, c) }),
			},
			{
				Key: "from", Doc: "An attribute whose value is the class. A header counts only from trusted_proxies.",
				Type: form.Type{Schema: `"$ref":"#/$defs/attribute","not":{"pattern":"^(method|path|host|client_ip)$|^(query|cookie):"}`}.
					By("`jwt:class`", func(n *yamltext.Node) { p.parseClassFrom(n, c) }),
			},
			{
				Key: "rules", Doc: "What chooses a class before from does; the first that matches counts.",
				Type: form.Type{Schema: `"type":"array","items":{"$ref":"#/$defs/classRule"}`}.By("a list", func(n *yamltext.Node) { p.parseClassRules(n, c) }),
			},
		},
	}
}

// classRuleKeys are the keys of one of the rules of priorities.
func (p *Parser) classRuleKeys(c *rules.Priorities, r *rules.ClassRule) form.Mapping {
	return form.Mapping{
		Def: "classRule", Doc: "Gives requests a class.",
		Rows: []form.Row{
			{Key: "match", Doc: "The requests; with soft, all of them if it is left out.", Type: form.Ref("match").By("a mapping", func(n *yamltext.Node) { p.parseMatch(n, &r.Match) })},
			{Key: "soft", Doc: "Of these, those above the soft part of a limit, or over one with on_limit: pass: if their class is higher, it is this one.", See: "more/priorities.md", Type: form.Flag(&r.Soft)},
			{
				Key: "class", Doc: "Their class.", Example: "for example class: critical",
				Type: form.Ref("name").By("one of `classes`", func(n *yamltext.Node) { r.Class = p.class(n, "class", c.Classes) }),
			},
		},
		Extra: `"anyOf":[{"required":["match"]},{"required":["soft"],"properties":{"soft":{"$ref":"#/$defs/isTrue"}}}]`,
	}
}

// class reads the name of a class, and returns its index.
func (p *Parser) class(n *yamltext.Node, key string, classes []string) int {
	word, ok := p.Word(n, key)
	i := slices.Index(classes, word)
	if ok && i < 0 && len(classes) > 0 { // else the classes are what is wrong
		p.Unknown(n, "class", "", classes, "")
	}
	return max(i, 0)
}

// lowers is a class rule for the requests that limits of a domain mark.
type lowers struct {
	at     *yamltext.Node
	domain string
	report *yamltext.Report
}

// warnUnmarked warns about class rules for marked requests where no limit marks any.
func (p *Parser) warnUnmarked() {
	for _, l := range p.lowers {
		marks := func(r *rules.Rule) bool {
			return r.Domain == l.domain && (r.Soft > 0 || r.OnLimit.Action == rules.Pass)
		}
		if !slices.ContainsFunc(p.Rules.Rules(), marks) {
			p.Report = l.report
			p.Warnf(l.at, "add soft: 80% to a limit", "no request has this class by \"soft\": no limit of the domain has soft or on_limit: pass")
		}
	}
}

// parsePriorities reads priorities.
func (p *Parser) parsePriorities(n *yamltext.Node, domain string) {
	c, before := &rules.Priorities{}, p.Errors
	f := form.Read(p.Report, n, "priorities", p.priorityKeys(c).Rows)
	if at, ok := p.prioritiesAt[domain]; ok {
		p.Errorf(n, "a domain has one list of classes: remove this one", "\"priorities\" of the domain %s are already set in %s", clip.Quote(domain), at)
		return
	}
	if p.prioritiesAt == nil {
		p.prioritiesAt = map[string]string{}
	}
	p.prioritiesAt[domain] = fmt.Sprintf("%s:%d:%d", p.File, n.Line, n.Column)
	if p.Errors > before || domain == "" {
		return
	}
	p.Rules.SetPriorities(domain, c)
	for i := range c.Rules {
		if c.Rules[i].Soft {
			p.lowers = append(p.lowers, lowers{f.Get("rules").Items[i], domain, p.Report})
		}
	}
}

// parseClasses reads the names of classes.
func (p *Parser) parseClasses(n *yamltext.Node, c *rules.Priorities) {
	if n.Kind != yamltext.List || len(n.Items) < 2 || len(n.Items) > rules.MaxClasses {
		p.Errorf(n, "for example [critical, default, sheddable]", "\"classes\" must be a list of 2 to %d names, the highest class first", rules.MaxClasses)
		return
	}
	for _, item := range n.Items {
		name, ok := p.ruleName(item)
		switch {
		case !ok:
		case slices.Contains(c.Classes, name):
			p.Errorf(item, "", "the class %s is repeated", clip.Quote(name))
		default:
			c.Classes = append(c.Classes, name)
		}
	}
	if c.Default = slices.Index(c.Classes, rules.DefaultClass); c.Default < 0 {
		p.Errorf(n, "", "one of the classes must be called default: it is that of requests for which nothing else chooses one")
	}
}

// parseClassFrom reads the attribute that names classes.
func (p *Parser) parseClassFrom(n *yamltext.Node, c *rules.Priorities) {
	text, ok := p.Word(n, "from")
	if !ok {
		return
	}
	a, err := rules.ParseAttribute(text)
	switch {
	case err != nil:
		p.Errorf(n, "", "%v", err)
		return
	case a.Kind == rules.Query || a.Kind == rules.Cookie:
		p.Errorf(n, "use a claim of a token, such as jwt:class, or a header that a trusted proxy sets", "every client can give itself a class in %s", clip.Quote(text))
		return
	case a.Kind != rules.Other && a.Kind != rules.Header && a.Kind != rules.JWT:
		p.Errorf(n, "write rules, such as rules: [{match: {path: /pay/**}, class: critical}]", "the value of %s is not a class", text)
		return
	}
	p.CheckEntry(n, a)
	c.From = &a
}

// parseClassRules reads the rules that choose classes.
func (p *Parser) parseClassRules(n *yamltext.Node, c *rules.Priorities) {
	if n.Kind != yamltext.List {
		p.Errorf(n, "", "\"rules\" must be a list, not %s", n.Kind)
		return
	}
	for i, item := range n.Items {
		var r rules.ClassRule
		what := yamltext.Ordinal("class rule", i)
		f := form.Read(p.Report, item, what, p.classRuleKeys(c, &r).Rows)
		switch {
		case r.Soft && r.Class == 0 && len(c.Classes) > 0:
			p.Errorf(f.Get("class"), "a lower class, such as class: "+c.Classes[len(c.Classes)-1], "\"soft\" can only lower the class of a request, and none is above %s", clip.Quote(c.Classes[0]))
		case f != nil && !r.Soft && f.Get("match") == nil:
			p.Errorf(item, "for example match: {path: /pay/**}", "%s has no \"match\"", what)
		}
		c.Rules = append(c.Rules, r)
	}
}

// headroomRow is the key headroom of a rule.
func headroomRow() form.Row {
	return form.Row{
		Key: "headroom", Doc: "What is kept for a class: those below it must leave it.", See: "more/priorities.md",
		Type: form.Type{
			Schema: `"type":"object","minProperties":1,"propertyNames":{"$ref":"#/$defs/name"},"additionalProperties":{"type":"string","pattern":"^([0-9]{1,2})(\\.[0-9]{1,4})?%$"}`,
		}.Is("`{critical: 20%}`"),
	}
}

// kept is the headroom of a rule. It is checked when the classes of all domains are known.
type kept struct {
	at     yamltext.Pair
	rule   *rules.Rule
	report *yamltext.Report
}

// parseHeadroom reads headroom of a rule whose limit is known.
func (p *Parser) parseHeadroom(f yamltext.Fields, r *rules.Rule) {
	at, ok := f["headroom"]
	if !ok {
		return
	}
	limit := r.Limit.Rule()
	switch {
	case at.Value.Kind != yamltext.Map || len(at.Value.Pairs) == 0:
		p.Errorf(at.Value, "for example headroom: {critical: 20%}", "\"headroom\" must be a mapping from classes to parts of the limit")
	case limit.Unlimited:
		p.Errorf(at.Key, "", "\"headroom\" does not work with an unlimited rate: there is nothing to keep")
	case limit.Age > 0:
		p.Errorf(at.Key, "remove sync: the store decides each request", "\"headroom\" does not work with sync: blocks: what is kept would be in the blocks of other servers")
	case limit.Shared():
		p.Errorf(at.Key, "give the limit a home, such as regions: {home: eu}", "\"headroom\" does not work with a limit that regions share: what is kept would be in other regions")
	case r.OnLimit.Action == rules.Queue:
		p.Errorf(at.Key, "remove one of them", "\"headroom\" does not work with action: queue: the line of a key is one for all classes, and critical requests would wait behind lower ones")
	case r.Soft > 0 || r.OnLimit.Action == rules.Pass:
		p.Errorf(at.Key, "write two limits", "\"headroom\" does not work with soft or on_limit: pass: how much of the limit is used depends on the class")
	case !limit.CanKeep():
		p.Errorf(at.Key, "", "\"headroom\" does not work with count: distinct or count_denied")
	case r.Domain != "":
		p.keeps = append(p.keeps, kept{at, r, p.Report})
	}
}

// keep gives rules their headroom.
func (p *Parser) keep() {
	for _, k := range p.keeps {
		p.Report = k.report
		if leave, ok := p.leave(k); ok {
			k.rule.Headroom = &rules.Headroom{Priorities: p.Rules.Priorities(k.rule.Domain), Leave: leave}
		}
	}
}

// leave returns what each class must leave: all that is kept for those above it.
func (p *Parser) leave(k kept) ([]uint32, bool) {
	classes := p.Rules.Priorities(k.rule.Domain)
	if _, broken := p.prioritiesAt[k.rule.Domain]; classes == nil && broken {
		return nil, false // which is an error already
	}
	if classes == nil {
		p.Errorf(k.at.Key, "add priorities: {classes: [critical, default, sheddable]} to the file", "\"headroom\" needs classes, and the domain %s has no \"priorities\"", clip.Quote(k.rule.Domain))
		return nil, false
	}
	parts, sum, before := make([]uint32, len(classes.Classes)), uint32(0), p.Errors
	limit := k.rule.Limit.Rule()
	keeps := func(leave uint32) int64 { return (&store.Op{Rule: limit, Leave: leave}).Kept() }
	for _, pair := range k.at.Value.Pairs {
		i := p.class(pair.Key, "headroom", classes.Classes)
		part, ok := p.part(pair.Value)
		if !ok || p.Errors > before {
			return nil, false
		}
		if i == len(parts)-1 {
			p.Errorf(pair.Key, "", "no class is below %s, so nothing can be kept for it", clip.Quote(pair.Key.Text))
			return nil, false
		}
		parts[i] = part
		if sum += part; sum >= store.Whole {
			p.Errorf(k.at.Value, "", "headroom is %g%% of the limit: less than 100%% leaves something for the others", float64(sum)/1e4)
			return nil, false
		}
	}
	sum = 0
	for i, part := range parts {
		parts[i], sum = sum, sum+part
		if limit.Most() > 0 && keeps(parts[i]) >= limit.Most() {
			p.Errorf(k.at.Value, "raise the limit, or remove headroom", "\"headroom\" leaves nothing of the limit of %d for the class %s, whose requests would always be refused: what is kept is rounded up", limit.Most(), clip.Quote(classes.Classes[i]))
			return nil, false
		}
	}
	for _, pair := range k.at.Value.Pairs {
		const few = 10
		i := slices.Index(classes.Classes, pair.Key.Text)
		if n := keeps(parts[i+1] - parts[i]); n < few {
			p.Warnf(pair.Value, "see docs/more/priorities.md", "%s of the limit is only %d: a burst of the class finds no room", pair.Value.Text, n)
		}
	}
	return parts, true
}

// part reads a part of a limit in millionths, such as 20%.
func (p *Parser) part(n *yamltext.Node) (uint32, bool) {
	part, ok := rules.ParsePart(n.Text)
	if ok = ok && n.Kind == yamltext.Text; !ok {
		p.Errorf(n, "for example 20%", "a part of the limit must be more than 0%% and less than 100%%, not %s", clip.Quote(n.Text))
	}
	return part, ok
}
