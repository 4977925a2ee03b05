package ownform

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// RuleKeys returns the keys of a rule.
func RuleKeys() []string {
	return append([]string{
		"name", "description", "disabled", "match", "key", "key_missing", "cost", "charge_on",
		"on_limit", "on_repeat", "mode", "percent", "on_store_error", "tiers", "concurrency", "lease",
	}, append(DistinctKeys(), LimitKeys()...)...)
}

// maxKeyParts is how many attributes a key may have.
const maxKeyParts = 16

// parseLimit reads one entry of limits.
func (p *Parser) parseLimit(n *yamltext.Node, what, domain string) {
	if named := n.TextOf("name"); named != "" {
		what = "limit " + clip.Quote(named)
	}
	form := ruleForm{node: n, before: p.Errors, what: what, domain: domain}
	form.f = p.Fields(n, what, RuleKeys())
	switch {
	case n.Kind != yamltext.Map:
	case form.f.Get("tiers") != nil:
		p.parseTiers(form)
	default:
		p.parseRule(form)
	}
}

// ruleForm is the input for one rule: a limit, or one of its tiers.
type ruleForm struct {
	node   *yamltext.Node
	f      yamltext.Fields
	what   string
	domain string // empty if unknown; the entry is still checked
	before int    // how many errors there were

	// For a limit with tiers. tier is empty for the limit's own rate, for requests
	// without a tier.
	form     *tierForm
	tier     string
	standard bool
}

// parseRule makes a rule of its keys.
func (p *Parser) parseRule(form ruleForm) {
	f, n := form.f, form.node
	r := &rules.Rule{
		Domain: form.domain, Percent: 100, Cost: 1, LocalShare: 1,
		OnLimit: rules.OnLimit{Action: rules.Reject, Status: 429},
		File:    p.File, Line: n.Line, Column: n.Column,
	}
	name, limit := f.Get("name"), n
	if form.form != nil {
		limit = form.form.limit
	}
	switch {
	case name == nil && !yamltext.HasKey(limit, "name"):
		p.Errorf(limit, "", "%s has no \"name\"", form.what)
	case name != nil:
		r.Name, _ = p.ruleName(name)
	}
	r.Scope, r.LimitName = rules.ScopeOf(form.domain, r.Name), r.Name
	zone, table := p.ownZone(f, r), p.tabled(f, r)
	if table == nil {
		r.Limit = p.parseLimitOf(f, n)
	}
	var match rules.Match
	asked := p.parseMatch(f.Get("match"), &match)
	p.parseKey(f, r)
	byPath := func(a rules.KeyAttribute) bool { return a.Kind == rules.Path }
	if match.ExactPath && len(match.Path.Any) == 0 && !slices.ContainsFunc(r.Key, byPath) {
		p.Warnf(f.Get("match"), "", "\"path_case\" has no effect: the rule neither matches nor counts by path")
	}
	p.ParseShared(f, r)
	p.parseDistinct(f, r)
	p.parseChargeOn(f, r, form.form)
	p.parseOnRepeat(f, r, form.form)
	if form.form != nil {
		form.form.apply(r, &match, asked, form.tier, form.standard)
		if form.tier != "" && r.Name != "" {
			r.Name += "/" + form.tier
			if len(r.Name) > rules.MaxName {
				p.Errorf(name, "", "the name %s, including its tier, is longer than %d bytes", clip.Quote(r.Name), rules.MaxName)
			}
		}
	}
	if zone != nil {
		zone.check(p, r, table)
	}
	if table != nil {
		table.check()
	}
	if p.Errors == form.before && !r.Disabled {
		if table == nil {
			p.WarnOfAll(f, r, "rate", "concurrency")
		}
		p.WarnOfNone(f, r)
	}
	if p.Errors > form.before {
		asked = nil
	}
	p.addRule(r, match, name, asked)
	if table != nil && p.Errors == form.before && !r.Disabled {
		table.enlist()
	}
}

// parseKey reads key and key_missing.
func (p *Parser) parseKey(f yamltext.Fields, r *rules.Rule) {
	if n := f.Get("key"); n != nil && n.Kind == yamltext.List && len(n.Items) == 0 {
		p.Warnf(n, "name what to count by, such as client_ip, or leave the key out", "the key is empty: all requests are counted together")
	} else if n != nil {
		parts := p.Texts(n, "key")
		if len(parts) > maxKeyParts {
			p.Errorf(n, "", "the key has %d parts, at most %d are allowed", len(parts), maxKeyParts)
			parts = nil
		}
		for _, t := range parts {
			p.addKeyPart(r, t)
		}
	}
	if n := f.Get("key_missing"); n != nil {
		word, ok := p.Choice(n, "key_missing", "share", "skip")
		if ok && word == "skip" {
			r.KeyMissing = rules.KeyMissingSkip
		}
		if ok && len(r.Key) == 0 && f.Get("of") == nil {
			p.Warnf(n, "", "\"key_missing\" has no effect without a key")
		}
	}
}

func (p *Parser) addKeyPart(r *rules.Rule, t yamltext.Item) {
	a, err := rules.ParseKeyAttribute(t.Text)
	if err != nil {
		p.Errorf(t.At, "", "%v", err)
		return
	}
	if slices.Contains(r.Key, a) {
		p.Warnf(t.At, "", "%s is in the key twice", clip.Quote(t.Text))
		return
	}
	if slices.ContainsFunc(r.Key, func(other rules.KeyAttribute) bool { return other.Attribute == a.Attribute }) {
		p.Errorf(t.At, "remove the plain one", "%s is in the key twice, hashed and plain", clip.Quote(a.Attribute.String()))
		return
	}
	p.CheckEntry(t.At, a.Attribute)
	if a.Kind == rules.Header && slices.Contains(forwardedFields(), a.Name) {
		p.Warnf(t.At, "count by client_ip, and list the proxies that set the header in trusted_proxies",
			"clients can send any value in %s, and each new value gets its own budget", a.Name)
	}
	r.Key = append(r.Key, a)
}

// forwardedFields returns headers in which proxies give the client's address.
func forwardedFields() []string {
	return []string{
		"X-Forwarded-For", "X-Real-Ip", "Forwarded", "X-Client-Ip", "X-Cluster-Client-Ip",
		"True-Client-Ip", "Client-Ip", "Cf-Connecting-Ip", "Cf-Connecting-Ipv6", "Fastly-Client-Ip", "Fly-Client-Ip", "X-Original-Forwarded-For",
	}
}

// ParseShared reads the keys that rules have in every form, except the limit, which must
// be known.
func (p *Parser) ParseShared(f yamltext.Fields, r *rules.Rule) {
	p.parseNumbers(f, r)
	p.parsePolicies(f, r)
	if n := f.Get("on_limit"); n != nil {
		p.parseOnLimit(n, r)
	}
	p.parseNotes(f, r)
}

// parseNumbers reads cost and percent.
func (p *Parser) parseNumbers(f yamltext.Fields, r *rules.Rule) {
	if n := f.Get("cost"); n != nil {
		p.parseCost(n, r)
	}
	percent := int64(r.Percent)
	p.IntegerOf(f, "percent", 0, 100, &percent)
	r.Percent = int(percent)
}

// parsePolicies reads mode and on_store_error.
func (p *Parser) parsePolicies(f yamltext.Fields, r *rules.Rule) {
	if n := f.Get("mode"); n != nil && slices.Contains([]string{"off", "disabled", "none"}, nearest.Folded(n.Text)) {
		p.Errorf(n, "to switch the rule off, write disabled: true", "unknown mode %s", clip.Quote(n.Text))
	} else if p.ChoiceOf(f, "mode", "enforce", "shadow") == "shadow" {
		r.Mode = rules.Shadow
	}
	n := f.Get("on_store_error")
	if n == nil {
		return
	}
	if n.Kind != yamltext.Map {
		p.parseStorePolicy(n, "on_store_error", r)
		return
	}
	inner := p.Fields(n, "on_store_error", []string{"policy", "share"})
	policy := inner.Get("policy")
	if policy == nil {
		p.Errorf(n, "", "on_store_error has no \"policy\"")
		return
	}
	p.parseStorePolicy(policy, "policy", r)
	if field, ok := inner["share"]; ok {
		p.parseShare(field, r)
	}
}

func (p *Parser) parseStorePolicy(n *yamltext.Node, key string, r *rules.Rule) {
	word, _ := p.Choice(n, key, "allow", "deny", "local")
	switch word {
	case "deny":
		r.OnStoreError = rules.StoreErrorDeny
	case "local":
		r.OnStoreError = rules.StoreErrorLocal
	}
}

// parseNotes reads description and disabled.
func (p *Parser) parseNotes(f yamltext.Fields, r *rules.Rule) {
	if n := f.Get("description"); n != nil {
		r.Description, _ = p.Word(n, "description")
	}
	r.Disabled = p.IsSet(f, "disabled")
}

// WarnOfAll warns about a limit, under one of two keys, or a cost with which the rule
// refuses every request.
func (p *Parser) WarnOfAll(f yamltext.Fields, r *rules.Rule, key, other string) {
	switch at := cmp.Or(f.Get(key), f.Get(other)); {
	case r.Limit.IsUnlimited() || at == nil:
	case r.Limit.N() == 0:
		p.Warnf(at, "", "a limit of 0 refuses every request")
	case r.Cost > r.Limit.Capacity():
		p.Warnf(f.Get("cost"), "", "the cost %d is more than the limit of %d: every request is refused", r.Cost, r.Limit.Capacity())
	}
}

// WarnOfNone warns about numbers with which the rule refuses no request.
func (p *Parser) WarnOfNone(f yamltext.Fields, r *rules.Rule) {
	if n := f.Get("cost"); n != nil && r.Cost == 0 && r.CostFrom == nil && r.CostAfter == nil {
		p.Warnf(n, "", "a cost of 0 counts nothing: no request is ever refused")
	}
	if n := f.Get("on_limit"); n != nil && r.KeyParts() == 0 && yamltext.HasKey(n, "key_share") {
		p.Warnf(n, "", "\"key_share\" has no effect without a key: all requests share the queue")
	}
	n := f.Get("percent")
	switch {
	case n == nil:
	case r.Mode == rules.Shadow:
		p.Warnf(n, "", "\"percent\" has no effect with mode: shadow")
	case r.Percent == 0:
		p.Warnf(n, "use mode: shadow instead", "\"percent\" of 0 never enforces the limit")
	case r.Percent < 100 && r.KeyParts() == 0:
		how := "always"
		if !r.Enforces("") {
			how = "never"
		}
		p.Warnf(n, "add a key, such as key: client_ip", "\"percent\" is a share of the keys, but this rule has no key: the limit is %s enforced", how)
	}
}
