package rules

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// descriptorKeys are the keys of one descriptor.
func descriptorKeys() []string {
	return []string{
		"key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode",
		"detailed_metric", "value_to_metric", "share_threshold", "metadata",
	}
}

// rateLimitKeys are the keys of rate_limit: Envoy's and Headgate's own.
func rateLimitKeys() []string {
	own := []string{"cost", "percent", "on_limit", "on_store_error", "description"}
	return slices.Concat(envoyLimitKeys(), limitKeys(), own)
}

func envoyLimitKeys() []string {
	return []string{"unit", "requests_per_unit", "unlimited", "name", "replaces"}
}

// treeForm reads the descriptors of one document.
type treeForm struct {
	*parser
	compat     Compat
	domain     *domain // nil if it is not known
	domainName string
}

// parsedBranch is a descriptor with what the warnings need to know of it.
type parsedBranch struct {
	*branch
	compat Compat
	parent *level
	// beside are the descriptors of the level with the same key.
	beside *choice
	at     *yamltext.Node
	report *yamltext.Report
	// same is the pattern before it that matches the same, if there is one.
	same *wildcard
}

// parsedTree is a domain's first list of descriptors: where it is, and whether
// others may add to it.
type parsedTree struct {
	at    string
	merge bool
}

// limitName is what replaces of its domain know a limit by.
type limitName struct{ domain, name string }

// parsedReplace is a name in a replaces.
type parsedReplace struct {
	limitName

	at     *yamltext.Node
	report *yamltext.Report
}

// peekCompat reads compat before all else, since the reading depends on it.
// What is wrong with it is reported later.
func (p *parser) peekCompat(doc *yamltext.Node) Compat {
	for _, field := range doc.Pairs {
		if field.Key.Text == "compat" {
			switch field.Value.Text {
			case "envoy":
				return CompatEnvoy
			case "none":
				return CompatNone
			}
		}
	}
	return p.options.Compat
}

// parse reads what a document has for the descriptor form.
func (t *treeForm) parse(f yamltext.Fields) {
	list, described := f["descriptors"]
	if n := f.Get("compat"); n != nil {
		if _, ok := t.Choice(n, "compat", "envoy", "none"); ok && !described {
			t.Warnf(n, "", "\"compat\" has no effect without descriptors")
		}
	}
	merge := t.options.MergeDomains
	if n := f.Get("merge_domains"); n != nil {
		merge, _ = t.flag(n, "merge_domains")
	}
	if !described {
		return
	}
	top := &level{}
	if t.domain != nil {
		top = t.tree(f, list.Key, merge)
	}
	t.descriptors(list.Value, top, nil)
}

// tree returns the top of the domain's tree, new if need be, and reports if
// these descriptors may not be added to it.
func (t *treeForm) tree(f yamltext.Fields, at *yamltext.Node, merge bool) *level {
	d := t.domain
	first := t.trees[d]
	switch {
	case d.tree == nil:
		d.tree = &tree{compat: t.compat}
		t.trees[d] = &parsedTree{fmt.Sprintf("%s:%d:%d", t.File, at.Line, at.Column), merge}
	case !merge && !first.merge:
		t.Errorf(f.Get("domain"), "merge_domains: true puts them together",
			"duplicate domain %s: its descriptors are in %s", clip.Quote(t.domainName), first.at)
		return &level{}
	case d.tree.compat != t.compat:
		t.Errorf(at, "", "the descriptors of the domain %s in %s have compat: %s, and these have compat: %s",
			clip.Quote(t.domainName), first.at, d.tree.compat, t.compat)
		return &level{}
	}
	return &d.tree.root
}

// descriptors reads a list of descriptors into a level.
func (t *treeForm) descriptors(list *yamltext.Node, into *level, path []*step) {
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
func (t *treeForm) descriptor(n *yamltext.Node, what string, into *level, path []*step) {
	if named := descriptorName(n); named != "" {
		what = "descriptor " + clip.Quote(named)
	}
	f := t.Fields(t.placed(n, what, descriptorKeys(), t.compat), what, descriptorKeys())
	if n.Kind != yamltext.Map {
		return
	}
	b := &branch{order: len(t.branches), file: t.File, line: n.Line, column: n.Column}
	ok := t.readStep(f, n, what, &b.step)
	b.valueToMetric = t.mode(f, "value_to_metric")
	path = append(slices.Clip(path), &b.step)
	if limit := f.Get("rate_limit"); limit != nil {
		b.rule = t.rateLimit(limit, what, n, path)
	}
	t.readModes(f, b.rule, path)
	if ok {
		t.put(b, into, n)
	}
	below := f.Get("descriptors")
	if below == nil {
		return
	}
	level := &level{}
	t.descriptors(below, level, path)
	if len(level.keys) > 0 {
		b.below = level
	}
}

// descriptorName names a descriptor for messages: key=value or key.
func descriptorName(n *yamltext.Node) string {
	key, value := "", ""
	for _, field := range n.Pairs {
		switch field.Key.Text {
		case "key":
			key = field.Value.Text
		case "value":
			value = field.Value.Text
		}
	}
	if key == "" || value == "" {
		return key
	}
	return key + "=" + value
}

// maxDescriptorText is the longest key or value of a descriptor in bytes.
const maxDescriptorText = 4096

// readStep reads key, value and share_threshold.
func (t *treeForm) readStep(f yamltext.Fields, at *yamltext.Node, what string, s *step) bool {
	n := f.Get("key")
	if n == nil {
		if !yamltext.HasKey(at, "key") {
			t.Errorf(at, "", "\"key\" is missing in %s", what)
		}
		return false
	}
	var ok bool
	if s.key, ok = t.scalar(n, "key"); !ok {
		return false
	}
	if s.key == "" {
		t.Errorf(n, "", "\"key\" is empty")
		return false
	}
	if strings.Contains(s.key, "*") && t.compat == CompatNone {
		t.Warnf(n, "wildcards stand in the value", "the * in the key %s is taken literally", clip.Quote(s.key))
	}
	s.attribute = keyAttribute(s.key)
	if s.attribute.Kind == JWT || s.attribute.Kind == Header || t.options.OnlyHTTP && s.key != remoteAddress { // which is client_ip too
		t.checkEntry(n, s.attribute)
	}
	s.kind = bareStep
	if n := f.Get("value"); n != nil {
		if s.value, ok = t.scalar(n, "value"); !ok {
			return false
		}
		t.readValue(n, s)
	}
	t.readShare(f, s)
	return true
}

// readValue tells by the value of s what kind of step it is.
func (t *treeForm) readValue(n *yamltext.Node, s *step) {
	star := strings.Contains(s.value, "*")
	switch {
	case s.value == "":
		t.Warnf(n, "leave the value out", "an empty value is the same as none: any value of %s matches", clip.Quote(s.key))
	case star && t.compat == CompatNone, strings.HasSuffix(s.value, "*"):
		s.kind = wildStep
	default:
		s.kind = exactStep
	}
	if t.compat == CompatEnvoy && strings.Contains(strings.TrimSuffix(s.value, "*"), "*") {
		t.Warnf(n, "without compat: envoy every * is a wildcard",
			"under compat: envoy only a * at the end is a wildcard: in %s the others stand for themselves", clip.Quote(s.value))
	}
}

// readShare reads share_threshold.
func (t *treeForm) readShare(f yamltext.Fields, s *step) {
	n := f.Get("share_threshold")
	if n == nil {
		return
	}
	yes, ok := t.flag(n, "share_threshold")
	switch {
	case !ok || !yes:
	case s.kind == wildStep:
		s.kind = sharedStep
		if t.compat == CompatEnvoy {
			s.shared = s.composite()
		}
	case s.kind == bareStep && t.compat == CompatEnvoy && s.isPrefix():
		s.shared = s.composite()
	case t.compat == CompatEnvoy:
		t.Errorf(n, "", "under compat: envoy \"share_threshold\" needs a value that ends in *: the values that match it are counted together")
	default:
		t.Errorf(n, "", "\"share_threshold\" needs a value with a *: the values that match it are counted together")
	}
}

// keyAttribute returns the attribute by which a request that is no descriptor
// has the key.
func keyAttribute(key string) Attribute {
	a, err := ParseAttribute(key)
	if err != nil {
		return Attribute{Kind: Other, Name: key}
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
		t.Errorf(n, "", "%q must have at most %d bytes and no control characters", key, maxDescriptorText)
		return "", false
	}
	return n.Text, true
}

// flag reads true or false, also as the yes, no, on and off of YAML 1.1, which
// Envoy's service understands.
func (p *parser) flag(n *yamltext.Node, key string) (value, ok bool) {
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

// place is where a descriptor stands; no other may stand there. For
// CompatEnvoy the key is the composite one.
type place struct {
	level      *level
	key, value string
	kind       stepKind
}

func (t *treeForm) placeOf(b *branch, into *level) place {
	switch {
	case t.compat == CompatEnvoy:
		return place{level: into, key: b.composite()}
	case b.kind == sharedStep:
		return place{into, b.key, b.value, wildStep}
	}
	return place{into, b.key, b.value, b.kind}
}

// put files a descriptor in its level.
func (t *treeForm) put(b *branch, into *level, at *yamltext.Node) {
	where := t.placeOf(b, into)
	if first := t.places[where]; first != nil {
		t.Errorf(at, "", "duplicate descriptor composite key %s: first in %s", clip.Quote(b.composite()), first.position())
		return
	}
	t.places[where] = b
	c := into.byKey[b.key]
	if c == nil {
		c = &choice{attribute: b.attribute, exact: map[string]*branch{}}
		if into.byKey == nil {
			into.byKey, into.joined = map[string]*choice{}, map[string]*branch{}
		}
		into.byKey[b.key] = c
		into.keys = append(into.keys, c)
	}
	parsed := parsedBranch{branch: b, compat: t.compat, parent: into, beside: c, at: at, report: t.Report}
	c.all = append(c.all, b)
	switch b.kind {
	case exactStep:
		c.exact[b.value] = b
	case bareStep:
		c.bare = b
	case wildStep, sharedStep:
		parsed.same = c.wild.add(t.wildcard(b.value, b))
	}
	if t.compat == CompatEnvoy {
		into.joined[b.composite()] = b
		if b.isPrefix() {
			into.wild.add(newPrefix(b.composite(), b))
		}
	}
	t.branches = append(t.branches, parsed)
	if b.rule != nil {
		t.set.rules = append(t.set.rules, b.rule)
	}
}

// wildcard reads the pattern of a value.
func (t *treeForm) wildcard(value string, b *branch) *wildcard {
	if t.compat == CompatEnvoy {
		return newPrefix(value, b)
	}
	return newWildcard(value, b)
}

// readModes reads what stands beside rate_limit, into r if there is a limit.
func (t *treeForm) readModes(f yamltext.Fields, r *Rule, path []*step) {
	if r == nil {
		r = new(Rule) // to be read and forgotten
	}
	shadow := t.modeOfLimit(f, "shadow_mode")
	r.QuotaMode = t.modeOfLimit(f, "quota_mode")
	r.DetailedMetric = t.modeOfLimit(f, "detailed_metric")
	limited := hasField(f, "rate_limit")
	if shadow {
		r.Mode = Shadow
		if r.Percent < 100 && limited {
			t.Warnf(f["shadow_mode"].Key, "", "\"percent\" has no effect beside shadow_mode")
		}
	}
	for i := range path {
		if path[i].valueToMetric && path[i].kind != sharedStep {
			r.MetricValues = append(r.MetricValues, i)
		}
	}
	n := f.Get("metadata")
	switch {
	case n == nil:
	case n.Kind != yamltext.Map:
		t.Errorf(n, "", "\"metadata\" must be a mapping of names to values, not %s", n.Kind)
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
