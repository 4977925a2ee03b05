package ownform

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/feature"
	"github.com/headgate/headgate/internal/rules/features"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// ruleKeys are the keys of a rule.
func (p *Parser) ruleKeys(rf *ruleForm) form.Mapping {
	rows := slices.Concat(p.firstKeys(rf), p.limitKeys(rf), p.distinctKeys(), p.slotKeys(new(int64), new(time.Duration)), p.SharedKeys(rf.rule), []form.Row{
		{
			Key: "charge_on", Doc: "Counts only requests with certain answers, such as failed logins.", See: "more/charge-on.md",
			Type: form.Ref("chargeOn").Is("a mapping").Or("every request"),
		},
	})
	rows = append(rows, headroomRow(), fairRow())
	for _, f := range features.All() {
		rows = append(rows, f.Row())
	}
	rows = append(rows, form.Row{Key: "tiers", Doc: "Different limits by plan.", See: "more/outcomes.md#tiers", Type: form.Ref("tiers").Is("a mapping")})
	return form.Mapping{
		Def: "limit", Doc: "One of Headgate's own rules.", By: "algorithm", Word: headgate.TokenBucket.String(), Rows: rows,
		Instead: map[string]string{headgate.Distinct.String(): `{"required":["count"]}`},
		Extra:   `"anyOf":[{"required":["rate"]},{"required":["tiers"]},{"required":["concurrency"]}]`, Together: limitTogether(),
	}
}

// firstKeys are the keys that say what a rule is for. The others depend on them.
func (p *Parser) firstKeys(rf *ruleForm) []form.Row {
	r := rf.rule
	return []form.Row{
		{
			Key: "name", Doc: "Shown in answers, headers and metrics; unique in its domain. Renaming a rule resets its counts.",
			Type: form.Ref("name").By("up to 128 letters, digits and `-_.:/`", func(n *yamltext.Node) { r.Name, _ = p.ruleName(n) }).Or(form.Required),
		},
		{Key: "disabled", Doc: "true: the rule is checked but not used.", Type: form.Flag(&r.Disabled)},
		{
			Key: "match", See: "rules/rules.md#match", Doc: "The requests that the rule applies to.",
			Type: form.Ref("match").By("a mapping", func(n *yamltext.Node) { rf.asked = p.parseMatch(n, &rf.match) }).Or("every request"),
		},
		{
			Key: "key", Doc: "What the limit counts by: an attribute or a list of up to 16.", See: "rules/rules.md#key",
			Type: form.Type{
				Schema: `"anyOf":[{"$ref":"#/$defs/keyAttribute"},{"type":"array","maxItems":16,"items":{"$ref":"#/$defs/keyAttribute"}}]`, Default: "one count for all",
			}.By("attributes", func(n *yamltext.Node) { p.parseKey(n, r) }),
		},
		{
			Key: "key_missing", Doc: "share: requests that lack a part of the key share one count. skip: the rule does not apply to them.",
			Type: form.Choice(&r.KeyMissing, rules.KeyMissingShare, rules.KeyMissingSkip),
		},
		{Key: "mode", Doc: "shadow: count and report, but refuse nothing.", See: "try/rollout.md", Type: p.mode(r)},
	}
}

// limitKeys are the keys of the limit of a rule, whose rate and zone may come from
// elsewhere. They are read together.
func (p *Parser) limitKeys(rf *ruleForm) []form.Row {
	rows := rf.limit.Rows()
	for i := range rows {
		switch row := &rows[i]; row.Key {
		case "rate":
			row.Type = form.Ref("ownRate").Is("`5/minute`, `unlimited`, or a mapping").Or("required, or concurrency")
			row.Doc += " Or where each key has its own: a table, or a claim of a token."
		case "timezone":
			row.Type = form.Ref("ownTimezone").Is("`Europe/Berlin`, an attribute, or a mapping").Or("UTC")
		}
		rows[i].Read = nil
	}
	return rows
}

// SharedKeys are the keys that rules have in every form, besides the limit, which must be
// known when they are read.
func (p *Parser) SharedKeys(r *rules.Rule) []form.Row {
	return []form.Row{
		{Key: "description", Doc: "For people.", Type: form.Text(&r.Description)},
		{Key: "cost", Type: form.Ref("cost").By("a number, or a mapping", func(n *yamltext.Node) { p.parseCost(n, r) }).Or("1"), Doc: "Multiplies the request's own cost.", See: "more/outcomes.md#cost-by-attribute"},
		{
			Key: "percent", Doc: "Enforces the rule for this percentage of the keys, always the same ones, and shadows it for the rest.",
			Type: form.Integer(0, 100, &r.Percent), See: "try/rollout.md",
		},
		{
			Key: "on_store_error", Doc: "What happens when the store cannot answer.", See: "run/failure.md",
			Type: form.Ref("onStoreError").By("`allow`, `deny`, `local`, or a mapping", func(n *yamltext.Node) { p.parseStoreError(n, r) }).Or("allow"),
		},
		{
			Key: "on_limit", Doc: "What happens to a request over the limit.", See: "more/outcomes.md",
			Type: form.Ref("onLimit").By("an action, or a mapping", func(n *yamltext.Node) { p.parseOnLimit(n, r) }).Or("reject"),
		},
		{
			Key: "soft", Doc: "The part of the limit above which requests pass and are marked.", See: "more/soft.md",
			Type: form.Type{Schema: `"type":"string","pattern":"^[1-9][0-9]?%$"`}.By("`1%` to `99%`", func(n *yamltext.Node) { p.parseSoft(n, r) }),
		},
	}
}

// mode is the type of mode.
func (p *Parser) mode(r *rules.Rule) form.Type {
	t := form.Choice(&r.Mode, rules.Enforce, rules.Shadow)
	known := t.Read
	t.Read = func(report *yamltext.Report, key string, at yamltext.Pair) {
		if slices.Contains([]string{"off", "disabled", "none"}, nearest.Folded(at.Value.Text)) {
			report.Errorf(at.Value, "to switch the rule off, write disabled: true", "unknown mode %s", clip.Quote(at.Value.Text))
		} else {
			known(report, key, at)
		}
	}
	return t
}

// storeErrorKeys are the keys of on_store_error.
func (p *Parser) storeErrorKeys(r *rules.Rule) form.Mapping {
	policy := form.Choice(&r.OnStoreError, rules.StoreErrorAllow, rules.StoreErrorDeny, rules.StoreErrorLocal)
	return form.Mapping{
		Def: "onStoreError", Doc: "What happens when the store cannot answer. allow: requests are allowed. deny: they are refused. local: this process enforces the limit on its own.",
		Short: &policy, By: "policy", Rows: []form.Row{
			{Key: "policy", Doc: "allow, deny or local.", Type: policy, Example: "for example on_store_error: {policy: local, share: 0.25}"},
			{
				Key: "share", Doc: "The part of the limit that this process enforces.", Only: []string{rules.StoreErrorLocal.String()},
				Type: form.Type{Schema: `"type":"number","exclusiveMinimum":0,"maximum":1`, Default: "1"}.By("above 0, to 1", func(n *yamltext.Node) { p.parseShare(n, r) }),
			},
		},
	}
}

// parseStoreError reads on_store_error: a policy, or a mapping with one.
func (p *Parser) parseStoreError(n *yamltext.Node, r *rules.Rule) {
	keys := p.storeErrorKeys(r)
	if n.Kind != yamltext.Map {
		form.ReadOne(p.Report, "on_store_error", n, *keys.Short)
		return
	}
	f := form.Read(p.Report, n, "on_store_error", keys.Rows)
	if f.Get("policy") != nil {
		form.Stray(f, keys.Rows, r.OnStoreError.String(), func(row *form.Row, at *yamltext.Node) {
			p.Errorf(at, "", "%q applies only to policy: local", row.Key)
		})
	}
}

// parseShare reads the part of a limit that this process enforces on its own.
func (p *Parser) parseShare(n *yamltext.Node, r *rules.Rule) {
	v, err := strconv.ParseFloat(n.Text, 64)
	switch {
	case n.Kind != yamltext.Number || err != nil:
		p.Errorf(n, "", "\"share\" must be a number, not %s", clip.Quote(n.Text))
	case !(v > 0 && v <= 1): // also refuses NaN
		p.Errorf(n, "", "\"share\" must be more than 0 and at most 1, not %s", n.Text)
	default:
		r.LocalShare = v
	}
}

// maxKeyParts is how many attributes a key may have.
const maxKeyParts = 16

// parseLimit reads one entry of limits.
func (p *Parser) parseLimit(n *yamltext.Node, what, domain string) {
	if named := n.TextOf("name"); named != "" {
		what = "limit " + clip.Quote(named)
	}
	rf := ruleForm{node: n, before: p.Errors, what: what, domain: domain}
	rf.f = p.Fields(n, what, p.Names("a rule", func() []form.Row { return p.ruleKeys(&ruleForm{rule: new(rules.Rule)}).Rows }))
	switch {
	case n.Kind != yamltext.Map:
	case rf.f.Get("tiers") != nil:
		p.parseTiers(rf)
	default:
		p.parseRule(rf)
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
	tiers    *tierForm
	tier     string
	standard bool

	// What is read.
	rule  *rules.Rule
	limit LimitForm
	match rules.Match
	asked conditions
}

// NewRule returns a rule with the defaults of all keys, at the place of a node.
func NewRule(domain, file string, at *yamltext.Node) *rules.Rule {
	return &rules.Rule{
		Domain: domain, Percent: 100, Cost: 1, LocalShare: 1,
		OnLimit: rules.OnLimit{Action: rules.Reject, Status: 429},
		File:    file, Line: at.Line, Column: at.Column,
	}
}

// parseRule makes a rule of its keys.
func (p *Parser) parseRule(rf ruleForm) {
	f, n := rf.f, rf.node
	r := NewRule(rf.domain, p.File, n)
	rf.rule, rf.asked = r, conditions{}
	name, limit := f.Get("name"), n
	if rf.tiers != nil {
		limit = rf.tiers.limit
	}
	if name == nil && !yamltext.HasKey(limit, "name") {
		p.Errorf(limit, "", "%s has no \"name\"", rf.what)
	}
	form.ReadFields(p.Report, f, p.firstKeys(&rf))
	r.Scope, r.LimitName = rules.ScopeOf(rf.domain, r.Name), r.Name
	zone, table := p.ownZone(f, r), p.tabled(f, r)
	if table == nil {
		r.Limit = p.parseLimitOf(f, n)
	}
	p.warnOfKeys(&rf)
	form.ReadFields(p.Report, f, p.SharedKeys(r))
	p.parseDistinct(f, r)
	p.CheckMarks(f, r)
	p.parseChargeOn(f, r, rf.tiers)
	p.parseHeadroom(f, r)
	p.parseFair(&rf, table != nil)
	for _, feat := range features.All() {
		feat.Read(&feature.Reading{Report: p.Report, Fields: f, Rule: r, Tiered: rf.tiers != nil, NoProxy: p.NoProxy, ProxyDomain: p.ProxyDomain})
	}
	if rf.tiers != nil {
		rf.tiers.apply(r, &rf.match, rf.asked, rf.tier, rf.standard)
		if rf.tier != "" && r.Name != "" {
			r.Name += "/" + rf.tier
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
	p.finishRule(&rf, name, table)
}

// warnOfKeys warns of what has no effect without a key or a path.
func (p *Parser) warnOfKeys(rf *ruleForm) {
	byPath := func(a rules.KeyAttribute) bool { return a.Kind == rules.Path }
	if rf.match.ExactPath && len(rf.match.Path.Any) == 0 && !slices.ContainsFunc(rf.rule.Key, byPath) {
		p.Warnf(rf.f.Get("match"), "", "\"path_case\" has no effect: the rule neither matches nor counts by path")
	}
	if n := rf.f.Get("key_missing"); n != nil && len(rf.rule.Key) == 0 && rf.f.Get("of") == nil && (n.Text == "share" || n.Text == "skip") {
		p.Warnf(n, "", "\"key_missing\" has no effect without a key")
	}
}

// finishRule adds the rule, with warnings if it has no errors.
func (p *Parser) finishRule(rf *ruleForm, name *yamltext.Node, table *tableForm) {
	r, asked := rf.rule, rf.asked
	if p.Errors == rf.before && !r.Disabled {
		if table == nil {
			p.WarnOfAll(rf.f, r, "rate", "concurrency")
		}
		p.WarnOfNone(rf.f, r)
	}
	if p.Errors > rf.before {
		asked = nil
	}
	p.addRule(r, rf.match, name, asked)
	if table != nil && p.Errors == rf.before && !r.Disabled {
		table.enlist()
	}
}

// parseKey reads key.
func (p *Parser) parseKey(n *yamltext.Node, r *rules.Rule) {
	if n.Kind == yamltext.List && len(n.Items) == 0 {
		p.Warnf(n, "name what to count by, such as client_ip, or leave the key out", "the key is empty: all requests are counted together")
		return
	}
	parts := p.Texts(n, "key")
	if len(parts) > maxKeyParts {
		p.Errorf(n, "", "the key has %d parts, at most %d are allowed", len(parts), maxKeyParts)
		parts = nil
	}
	for _, t := range parts {
		p.addKeyPart(r, t)
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
	if slices.ContainsFunc(r.Key, func(other rules.KeyAttribute) bool { return other.Plain() == a.Plain() }) {
		p.Errorf(t.At, "remove the plain one", "%s is in the key twice, hashed and plain", clip.Quote(a.Plain().String()))
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

// WarnOfAll warns about a limit, under one of two keys, or a cost with which the rule
// refuses every request.
func (p *Parser) WarnOfAll(f yamltext.Fields, r *rules.Rule, key, other string) {
	switch at := cmp.Or(f.Get(key), f.Get(other)); {
	case r.Limit.Rule().Unlimited || at == nil:
	case r.Limit.N() == 0 && r.OnLimit.Action == rules.Pass:
		p.Warnf(at, "", "with a limit of 0 every request is marked")
	case r.Limit.N() == 0:
		p.Warnf(at, "", "a limit of 0 refuses every request")
	case r.Cost > r.Limit.Burst() && r.OnLimit.Action != rules.Pass:
		p.Warnf(f.Get("cost"), "", "the cost %d is more than the limit of %d: every request is refused", r.Cost, r.Limit.Burst())
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
