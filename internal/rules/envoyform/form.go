// Package envoyform parses descriptors, the rule format of envoyproxy/ratelimit, with
// the keys that Headgate adds, into a rules.Builder.
package envoyform

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/ownform"
	"github.com/headgate/headgate/internal/rules/yamltext"
	"github.com/headgate/headgate/store"
)

// descriptorKeys are the keys of one descriptor.
func descriptorKeys() form.Mapping {
	flag := func(key, doc string) form.Row {
		return form.Row{Key: key, Doc: doc, Type: form.Ref("flag").Is("`true`, `false`").Or("false")}
	}
	return form.Mapping{
		Def: "descriptor", Doc: "A descriptor, as in envoyproxy/ratelimit.", Rows: []form.Row{
			{Key: "key", Doc: "The entry's key.", Type: form.Type{Schema: `"allOf":[{"$ref":"#/$defs/scalar"}],"minLength":1`, Values: "text", Default: form.Required}},
			{
				Key: "value", Doc: "The entry's value, in which * is a wildcard. Without it, any value matches, each with its own count.",
				Type: form.Type{Schema: `"anyOf":[{"$ref":"#/$defs/scalar"},{"type":"null"}]`, Values: "text", Default: "any"},
			},
			{Key: "rate_limit", Doc: "The limit.", Type: form.Ref("rateLimit").Is("a mapping")},
			{
				Key: "descriptors", Doc: "Descriptors for the next entry.",
				Type: form.Type{Schema: `"type":["array","null"],"items":{"$ref":"#/$defs/descriptor"}`, Values: "a list"},
			},
			flag("shadow_mode", "Count and report, but refuse nothing."),
			flag("quota_mode", "The request is refused only if all limits in quota mode refuse it."),
			flag("detailed_metric", "Adds metrics by the values of the whole descriptor."),
			flag("value_to_metric", "Adds metrics by the value of this entry."),
			flag("share_threshold", "All values that match the wildcard are counted together."),
			{Key: "metadata", Doc: "Sent to Envoy as dynamic metadata.", Type: form.Type{Schema: `"type":["object","null"]`, Values: "a mapping"}},
		},
		Extra: `"required":["key"]`,
		Together: []string{
			`{"if":{"required":["share_threshold"],"properties":{"share_threshold":{"$ref":"#/$defs/isTrue"}}},"then":{"required":["value"],"properties":{"value":{"type":"string","pattern":"\\*"}}}}`,
		},
	}
}

// rateLimitKeys are the keys of rate_limit: Envoy's and Headgate's own.
func (t *treeForm) rateLimitKeys(l *ownform.LimitForm, r *rules.Rule) form.Mapping {
	rows := slices.Concat(envoyLimitKeys(), l.Rows(), t.SharedKeys(r))
	all := append([]string{"unit"}, ownform.LimitKeys()...)
	for i := range rows {
		if rows[i].Key == "algorithm" {
			rows[i].Default = headgate.FixedWindow.String()
		}
	}
	return form.Mapping{
		Def: "rateLimit", Doc: "The limit of a descriptor: requests_per_unit with unit or period, or rate, or unlimited.", By: "algorithm", Word: headgate.FixedWindow.String(), Rows: rows,
		Nullable: true, Together: []string{
			`{"$ref":"#/$defs/descriptorLimit"}`,
			`{"if":{"required":["unlimited"],"properties":{"unlimited":{"$ref":"#/$defs/isTrue"}}},"else":{"if":{"required":["rate"]},"then":{"properties":{"unit":false,"requests_per_unit":false}},"else":{"if":{"type":"object"},"then":{"required":["requests_per_unit"],"oneOf":[{"required":["unit"]},{"required":["period"]}]}}}}`,
			form.Without(`"required":["rate"],"properties":{"rate":{"type":"string","pattern":"^\\s*[uU][nN][lL][iI][mM][iI][tT][eE][dD]\\s*$"}}`, ownform.LimitKeys()[1:]),
			form.Without(`"required":["unlimited"],"properties":{"unlimited":{"$ref":"#/$defs/isTrue"}}`, all),
		},
	}
}

func envoyLimitKeys() []form.Row {
	return []form.Row{
		{
			Key: "unit", Doc: "second, minute, hour, day, week, month or year, in any case.",
			Type: form.Type{Schema: `"type":"string","anyOf":[{"enum":` + form.Words(envoyUnits()) + `},{"pattern":"^([sS][eE][cC][oO][nN][dD]|[mM][iI][nN][uU][tT][eE]|[hH][oO][uU][rR]|[dD][aA][yY]|[wW][eE][eE][kK]|[mM][oO][nN][tT][hH]|[yY][eE][aA][rR])$"}]`, Values: "a unit"},
		},
		{Key: "requests_per_unit", Doc: "How many requests per unit or period.", Type: form.Integer(0, store.MaxLimit, new(int64))},
		{Key: "unlimited", Doc: "true: everything is allowed.", Type: form.Ref("flag").Is("`true`, `false`")},
		{
			Key: "name", Doc: "The limit's name, shown to clients and used by replaces.",
			Type: form.Type{Schema: `"anyOf":[{"type":["string","number","boolean"],"maxLength":256},{"type":"null"}]`, Values: "text"},
		},
		{
			Key: "replaces", Doc: "Names of limits that do not apply where this one does.",
			Type: form.Type{Schema: `"type":["array","null"],"items":{` + form.Object(form.Mapping{Rows: replaceKeys()}).Said().Schema + "}", Values: "`[{name: other}]`"},
		},
	}
}

func replaceKeys() []form.Row {
	return []form.Row{{Key: "name", Doc: "The name of the limit.", Example: "for example replaces: [{name: other}]", Type: form.Type{Schema: `"type":["string","number","boolean"],"minLength":1`}}}
}

// Mappings returns the mappings of descriptors, by their tables: for the schema and the docs.
func Mappings() []form.Mapping {
	t := treeForm{Parser: NewParser(ownform.NewParser(nil), rules.CompatNone, false)}
	return []form.Mapping{descriptorKeys(), t.rateLimitKeys(new(ownform.LimitForm), ownform.NewRule("", "", &yamltext.Node{}))}
}

// known returns the names of the keys of a descriptor, and of its rate_limit.
func (p *Parser) known() (descriptor, rateLimit []string) {
	return p.Names("descriptor", func() []form.Row { return Mappings()[0].Rows }), p.Names("rate_limit", func() []form.Row { return Mappings()[1].Rows })
}

// Parser reads the descriptors of all files.
type Parser struct {
	*ownform.Parser
	compat       rules.Compat // of documents that do not say
	mergeDomains bool

	trees    map[string]*parsedTree // by their domains
	branches []parsedBranch         // all descriptors, in the order of the files
	replaces []parsedReplace
}

// NewParser returns a parser that adds to the rules of own. compat is the default for
// documents; merge allows several documents to add descriptors to a domain.
func NewParser(own *ownform.Parser, compat rules.Compat, merge bool) *Parser {
	return &Parser{Parser: own, compat: compat, mergeDomains: merge, trees: map[string]*parsedTree{}}
}

// treeForm reads the descriptors of one document.
type treeForm struct {
	*Parser
	compat rules.Compat
	domain string // empty if it is not known
}

// parsedBranch is a descriptor and where to warn of it.
type parsedBranch struct {
	*rules.FiledBranch
	at     *yamltext.Node
	report *yamltext.Report
}

// parsedTree is a domain's first list of descriptors: where it is, and whether
// others may add to it.
type parsedTree struct {
	at     string
	merge  bool
	compat rules.Compat
	root   *rules.Level
}

// parsedReplace is a name in a replaces.
type parsedReplace struct {
	ownform.LimitName

	at     *yamltext.Node
	report *yamltext.Report
}

// CompatOf reads compat first, since parsing depends on it. Errors in it are reported
// later.
func (p *Parser) CompatOf(doc *yamltext.Node) rules.Compat {
	if compat, ok := rules.ParseCompat(doc.TextOf("compat")); ok {
		return compat
	}
	return p.compat
}

// Parse parses the descriptors of a document. The domain is empty if it is unknown.
func (p *Parser) Parse(f yamltext.Fields, domain string, compat rules.Compat) {
	t := treeForm{Parser: p, compat: compat, domain: domain}
	list, described := f["descriptors"]
	if n := f.Get("compat"); n != nil {
		if _, ok := t.Choice(n, "compat", "envoy", "none"); ok && !described {
			t.Warnf(n, "", "\"compat\" has no effect without descriptors")
		}
	}
	merge := p.mergeDomains
	if n := f.Get("merge_domains"); n != nil {
		merge, _ = t.flag(n, "merge_domains")
	}
	if described {
		t.descriptors(list.Value, t.top(f, list.Key, merge), nil)
	}
}

// top returns the top of the domain's tree, and reports an error if these descriptors
// cannot be added to it.
func (t *treeForm) top(f yamltext.Fields, at *yamltext.Node, merge bool) *rules.Level {
	first := t.trees[t.domain]
	switch {
	case t.domain == "":
		return &rules.Level{}
	case first == nil:
		root := t.Rules.Tree(t.domain, t.compat)
		t.trees[t.domain] = &parsedTree{fmt.Sprintf("%s:%d:%d", t.File, at.Line, at.Column), merge, t.compat, root}
		return root
	case !merge && !first.merge:
		t.Errorf(f.Get("domain"), "set merge_domains: true to combine them",
			"duplicate domain %s: its descriptors are already in %s", clip.Quote(t.domain), first.at)
		return &rules.Level{}
	case first.compat != t.compat:
		t.Errorf(at, "", "all descriptors of a domain need the same compat: those of %s in %s have %s, these have %s",
			clip.Quote(t.domain), first.at, first.compat, t.compat)
		return &rules.Level{}
	}
	return first.root
}

// descriptors reads a list of descriptors into a level.
func (t *treeForm) descriptors(list *yamltext.Node, into *rules.Level, path []*rules.Step) {
	if list.Kind == yamltext.Null {
		return
	}
	if list.Kind != yamltext.List {
		t.Errorf(list, "", "\"descriptors\" must be a list, not %s", list.Kind)
		return
	}
	for i, item := range list.Items {
		t.descriptor(item, yamltext.Ordinal("descriptor", i), into, path)
	}
}

// descriptor reads one descriptor and what is below it.
func (t *treeForm) descriptor(n *yamltext.Node, what string, into *rules.Level, path []*rules.Step) {
	if named := descriptorName(n); named != "" {
		what = "descriptor " + clip.Quote(named)
	}
	keys, _ := t.known()
	f := t.Fields(t.Placed(n, what, keys, t.compat), what, keys)
	if n.Kind != yamltext.Map {
		return
	}
	b := &rules.Branch{File: t.File, Line: n.Line, Column: n.Column}
	ok := t.readStep(f, n, what, &b.Step)
	b.ValueToMetric = t.mode(f, "value_to_metric")
	path = append(slices.Clip(path), &b.Step)
	if limit := f.Get("rate_limit"); limit != nil {
		b.Rule = t.rateLimit(limit, what, n, path)
	}
	t.readModes(f, b.Rule, path)
	if ok {
		t.put(b, into, n)
	}
	below := f.Get("descriptors")
	if below == nil {
		return
	}
	level := &rules.Level{}
	t.descriptors(below, level, path)
	if !level.IsEmpty() {
		b.Below = level
	}
}

// descriptorName names a descriptor for messages: key=value or key.
func descriptorName(n *yamltext.Node) string {
	key, value := n.TextOf("key"), n.TextOf("value")
	if key == "" || value == "" {
		return key
	}
	return key + "=" + value
}

// maxDescriptorText is the longest key or value of a descriptor in bytes.
const maxDescriptorText = 4096

// readStep reads key, value and share_threshold.
func (t *treeForm) readStep(f yamltext.Fields, at *yamltext.Node, what string, s *rules.Step) bool {
	n := f.Get("key")
	if n == nil {
		if !yamltext.HasKey(at, "key") {
			t.Errorf(at, "", "%s has no \"key\"", what)
		}
		return false
	}
	var ok bool
	if s.Key, ok = t.scalar(n, "key"); !ok {
		return false
	}
	if s.Key == "" {
		t.Errorf(n, "", "\"key\" is empty")
		return false
	}
	if strings.Contains(s.Key, "*") && t.compat == rules.CompatNone {
		t.Warnf(n, "wildcards work only in the value", "the * in the key %s is matched literally", clip.Quote(s.Key))
	}
	s.Attribute = keyAttribute(s.Key)
	if s.Attribute.Kind == rules.JWT || s.Attribute.Kind == rules.Header || t.OnlyHTTP && s.Key != rules.RemoteAddress { // which is client_ip too
		t.CheckEntry(n, s.Attribute)
	}
	s.Kind = rules.BareStep
	if n := f.Get("value"); n != nil {
		if s.Value, ok = t.scalar(n, "value"); !ok {
			return false
		}
		t.readValue(n, s)
	}
	t.readShare(f, s)
	return true
}

// readValue sets the kind of s by its value.
func (t *treeForm) readValue(n *yamltext.Node, s *rules.Step) {
	switch {
	case s.Value == "":
		t.Warnf(n, "leave the value out", "an empty value matches any value of %s", clip.Quote(s.Key))
	case strings.Contains(s.Value, "*"):
		s.Kind = rules.WildStep
	default:
		s.Kind = rules.ExactStep
	}
}

// readShare reads share_threshold.
func (t *treeForm) readShare(f yamltext.Fields, s *rules.Step) {
	n := f.Get("share_threshold")
	if n == nil {
		return
	}
	yes, ok := t.flag(n, "share_threshold")
	switch {
	case !ok || !yes:
	case s.Kind == rules.WildStep:
		s.Kind = rules.SharedStep
		if t.compat == rules.CompatEnvoy {
			s.Shared = s.Composite()
		}
	case s.Kind == rules.BareStep && t.compat == rules.CompatEnvoy && s.IsJoinedWild():
		s.Shared = s.Composite()
	case t.compat == rules.CompatEnvoy:
		t.Errorf(n, "", "with compat: envoy \"share_threshold\" needs a value with a *: it counts all values that match together")
	default:
		t.Errorf(n, "", "\"share_threshold\" needs a value with a *: it counts all values that match together")
	}
}

// keyAttribute returns the attribute for a key in requests that are not descriptors.
func keyAttribute(key string) rules.Attribute {
	a, err := rules.ParseAttribute(key)
	if err != nil {
		return rules.Attribute{Kind: rules.Other, Name: key}
	}
	return a
}

// scalar reads text; of numbers, true and false what is written, as Envoy's
// service reads them.
func (t *treeForm) scalar(n *yamltext.Node, key string) (string, bool) {
	switch n.Kind {
	case yamltext.List, yamltext.Map, yamltext.Null:
		t.Errorf(n, "", "%q must be text, not %s", key, n.Kind)
		return "", false
	case yamltext.Text, yamltext.Number, yamltext.Bool:
	}
	if len(n.Text) > maxDescriptorText || strings.ContainsFunc(n.Text, unicode.IsControl) {
		t.Errorf(n, "", "%q must be at most %d bytes long, without control characters", key, maxDescriptorText)
		return "", false
	}
	return n.Text, true
}

// flag reads true or false, also as the yes, no, on and off of YAML 1.1, which
// Envoy's service understands.
func (p *Parser) flag(n *yamltext.Node, key string) (value, ok bool) {
	if n.Kind == yamltext.Text || n.Kind == yamltext.Bool { // the latter by a tag
		switch strings.ToLower(n.Text) {
		case "yes", "on", "y":
			return true, true
		case "no", "off", "n":
			return false, true
		}
	}
	return p.Boolean(n, key)
}

// put files a descriptor in its level.
func (t *treeForm) put(b *rules.Branch, into *rules.Level, at *yamltext.Node) {
	filed, err := t.Rules.AddBranch(into, b, t.compat)
	if err != nil {
		t.Errorf(at, "", "%v", err)
		return
	}
	t.branches = append(t.branches, parsedBranch{filed, at, t.Report})
}

// readModes reads the keys next to rate_limit, into r if there is a limit.
func (t *treeForm) readModes(f yamltext.Fields, r *rules.Rule, path []*rules.Step) {
	if r == nil {
		r = new(rules.Rule) // discarded
	}
	shadow := t.modeOfLimit(f, "shadow_mode")
	r.QuotaMode = t.modeOfLimit(f, "quota_mode")
	r.DetailedMetric = t.modeOfLimit(f, "detailed_metric")
	limited := hasField(f, "rate_limit")
	if r.QuotaMode && r.OnLimit.Action == rules.Pass {
		t.Errorf(f["quota_mode"].Key, "remove one of them", "quota_mode does not work with action: pass: a request over the limit passes anyway")
	}
	if shadow {
		r.Mode = rules.Shadow
		if r.Percent < 100 && limited {
			t.Warnf(f["shadow_mode"].Key, "", "\"percent\" has no effect with shadow_mode")
		}
	}
	for i := range path {
		if path[i].ValueToMetric && path[i].Kind != rules.SharedStep {
			r.MetricValues = append(r.MetricValues, i)
		}
	}
	n := f.Get("metadata")
	switch {
	case n == nil:
	case n.Kind != yamltext.Map:
		t.Errorf(n, "", "\"metadata\" must be a mapping (name: value), not %s", n.Kind)
	default:
		r.Metadata, _ = n.Plain().(map[string]any)
		if !limited {
			t.Warnf(f["metadata"].Key, "", "\"metadata\" has no effect without a rate_limit")
		}
	}
}

func hasField(f yamltext.Fields, key string) bool {
	_, ok := f[key]
	return ok
}

// mode reads one switch.
func (t *treeForm) mode(f yamltext.Fields, key string) bool {
	n := f.Get(key)
	if n == nil {
		return false
	}
	yes, _ := t.flag(n, key)
	return yes
}

// modeOfLimit reads a switch that has no effect without a limit.
func (t *treeForm) modeOfLimit(f yamltext.Fields, key string) bool {
	yes := t.mode(f, key)
	if yes && !hasField(f, "rate_limit") {
		t.Warnf(f[key].Key, "", "%q has no effect without a rate_limit", key)
	}
	return yes
}
