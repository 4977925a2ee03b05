package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// rateLimit reads the rate_limit of a descriptor. The rule stands where the
// descriptor does, at.
func (t *treeForm) rateLimit(n *yamltext.Node, what string, at *yamltext.Node, path []*step) *Rule {
	what = "the rate_limit of " + what
	before := t.Errors
	f := t.Fields(t.placed(n, what, rateLimitKeys(), t.compat), what, rateLimitKeys())
	if n.Kind != yamltext.Map {
		return nil
	}
	r := &Rule{
		Domain: t.domainName, Percent: 100, Cost: 1, LocalShare: 1,
		OnLimit: OnLimit{Action: Reject, Status: 429},
		File:    t.File, Line: at.Line, Column: at.Column,
		steps: path, flat: t.compat == CompatEnvoy,
	}
	r.Limit = t.descriptorLimit(f, n, t.Errors > before)
	t.readName(f, r)
	t.readReplaces(f, r)
	t.parseNumbers(f, r)
	t.parsePolicies(f, r)
	if n := f.Get("on_limit"); n != nil {
		t.parseOnLimit(n, r)
	}
	t.parseNotes(f, r)
	if t.Errors == before {
		t.warnOfDescriptor(f, r)
	}
	t.identify(r)
	if t.Errors == before {
		t.warnOfNone(f, r)
	}
	return r
}

// identify sets what the counts of r belong to.
func (t *treeForm) identify(r *Rule) {
	if r.flat {
		r.join()
		return
	}
	r.Scope = scopeOf(t.domainName, pathScope(r.steps))
	for i := range r.steps {
		if s := r.steps[i]; s.kind == bareStep || s.kind == wildStep {
			r.Key = append(r.Key, KeyAttribute{Attribute: s.attribute})
		}
	}
}

// descriptorLimit reads the limit: requests_per_unit with unit or period, or
// rate, or unlimited. If a key has been refused already it does not ask for
// what is missing, as that is probably what was meant.
func (t *treeForm) descriptorLimit(f yamltext.Fields, at *yamltext.Node, refused bool) headgate.Limit {
	l := limitForm{
		parser: t.parser, f: f, at: at,
		algorithm: headgate.FixedWindow, plain: t.compat == CompatEnvoy,
	}
	before := t.Errors
	if n := f.Get("unlimited"); n != nil {
		if yes, ok := t.flag(n, "unlimited"); yes || !ok {
			if !t.junkUnit(&l) {
				l.refuseBeside("unlimited: true", "unit")
			}
			l.refuseBeside("unlimited: true", limitKeys()...)
			if field, ok := f["requests_per_unit"]; ok {
				t.Warnf(field.Key, "", "\"requests_per_unit\" has no effect beside unlimited: true")
			}
			return headgate.Unlimited()
		}
	}
	if hasField(f, "rate") {
		l.refuseBeside("rate", "unit", "requests_per_unit")
		l.readRate()
	} else {
		t.readCount(&l, refused)
		t.readPeriod(&l, refused)
	}
	l.readAlgorithm()
	if l.rate.Unlimited {
		l.refuseBeside("rate: unlimited", limitKeys()[1:]...)
		return headgate.Unlimited()
	}
	return l.finish(before)
}

// readCount reads requests_per_unit.
func (t *treeForm) readCount(l *limitForm, refused bool) {
	n := l.f.Get("requests_per_unit")
	switch {
	case n != nil:
		if t.compat == CompatEnvoy {
			n = inDecimal(n)
		}
		l.rate.N, _ = t.Integer(n, "requests_per_unit", 0, headgate.MaxLimit)
	case refused:
	case t.compat == CompatEnvoy:
		t.Warnf(l.at, "", "\"requests_per_unit\" is missing: every request is refused")
	default:
		t.Errorf(l.at, "0 refuses every request", "\"requests_per_unit\" is missing")
	}
}

// inDecimal returns n, a number in whatever notation of YAML 1.1, as Envoy's
// service reads it: of 010, 0o10, 0x8 and 0b1000 each is 8.
func inDecimal(n *yamltext.Node) *yamltext.Node {
	if n.Kind != yamltext.Number && n.Kind != yamltext.Text {
		return n
	}
	v, err := strconv.ParseInt(strings.ReplaceAll(n.Text, "_", ""), 0, 64)
	if err != nil || !strings.HasPrefix(n.Text, "0") {
		return n
	}
	here := *n
	here.Kind, here.Text = yamltext.Number, strconv.FormatInt(v, 10)
	return &here
}

// junkUnit reports, and warns of, a unit beside unlimited that is none, which
// Envoy's service overlooks.
func (t *treeForm) junkUnit(l *limitForm) bool {
	n := l.f.Get("unit")
	if t.compat != CompatEnvoy || n == nil || slices.Contains(envoyUnits(), strings.ToLower(n.Text)) {
		return false
	}
	t.Warnf(n, "", "the unit %s is not known, and has no effect beside unlimited: true", clip.Quote(n.Text))
	return true
}

func envoyUnits() []string {
	return []string{"second", "minute", "hour", "day", "week", "month", "year"}
}

// readPeriod reads unit or period.
func (t *treeForm) readPeriod(l *limitForm, refused bool) {
	unit, period := l.f.Get("unit"), l.f.Get("period")
	switch {
	case unit != nil && period != nil:
		t.Errorf(l.f["period"].Key, "", "give either \"unit\" or \"period\", not both")
	case unit != nil:
		t.readUnit(unit, l)
	case period == nil && refused:
	case period == nil:
		t.Errorf(l.at, "for example unit: minute, or period: 30s", "\"unit\" is missing")
	case period.Kind != yamltext.Text && period.Kind != yamltext.Number:
		t.Errorf(period, "", "\"period\" must be text such as 30s, not %s", period.Kind)
	default:
		var err error
		if l.rate.Period, l.rate.Unit, err = parsePeriod(period.Text); err != nil {
			t.Errorf(period, "", "%v", err)
		}
	}
}

// readUnit reads a unit of Envoy's, in whatever case.
func (t *treeForm) readUnit(n *yamltext.Node, l *limitForm) {
	known := envoyUnits()
	if n.Kind != yamltext.Text {
		t.Errorf(n, "for other lengths use period, such as period: 90s", "\"unit\" must be one of %s, not %s", strings.Join(known, ", "), n.Kind)
		return
	}
	word := n.Text
	lower := strings.ToLower(word)
	if !slices.Contains(known, lower) {
		near := nearest.DidYouMean(word, known)
		hint := ""
		if near == "" {
			hint = "known are " + strings.Join(known, ", ") + "; for other lengths use period, such as period: 30s"
		}
		t.Errorf(n, hint, "unknown unit %s%s", clip.Quote(word), near)
		return
	}
	u, _ := unitOf(lower)
	l.rate.Period, l.rate.Unit = u.length, u.calendar
}

// readName reads the name that clients and replaces know the limit by.
func (t *treeForm) readName(f yamltext.Fields, r *Rule) {
	n := f.Get("name")
	if n == nil {
		return
	}
	name, ok := t.scalar(n, "name")
	switch {
	case !ok:
	case name == "":
		t.Warnf(n, "", "\"name\" is empty")
	case len(name) > maxDomain:
		t.Errorf(n, "", "the name %s must have at most %d bytes", clip.Quote(name), maxDomain)
	default:
		r.LimitName = name
	}
}

// readReplaces reads the names of limits that this one takes the place of.
func (t *treeForm) readReplaces(f yamltext.Fields, r *Rule) {
	list := f.Get("replaces")
	if list == nil {
		return
	}
	if list.Kind != yamltext.List {
		t.Errorf(list, "for example replaces: [{name: other}]", "\"replaces\" must be a list, not %s", list.Kind)
		return
	}
	for _, item := range list.Items {
		inner := t.Fields(item, "an entry of replaces", []string{"name"})
		n := inner.Get("name")
		if n == nil {
			if item.Kind == yamltext.Map && !yamltext.HasKey(item, "name") {
				t.Errorf(item, "", "\"name\" is missing in an entry of replaces")
			}
			continue
		}
		name, ok := t.scalar(n, "name")
		switch {
		case !ok:
		case name == "":
			t.Errorf(n, "", "\"name\" is empty in an entry of replaces")
		case name == r.LimitName:
			t.Errorf(n, "", "the limit %s cannot replace itself", clip.Quote(name))
		case slices.Contains(r.Replaces, name):
			t.Warnf(n, "", "%s is replaced twice", clip.Quote(name))
		default:
			r.Replaces = append(r.Replaces, name)
			t.replaces = append(t.replaces, parsedReplace{limitName{t.domainName, name}, n, t.Report})
			t.replaced[limitName{t.domainName, name}] = true
		}
	}
}

// warnOfDescriptor warns of numbers that make the rule refuse all.
func (t *treeForm) warnOfDescriptor(f yamltext.Fields, r *Rule) {
	n := f.Get("requests_per_unit")
	if n == nil {
		n = f.Get("rate")
	}
	switch {
	case r.Limit.IsUnlimited() || n == nil:
	case r.Limit.N() == 0:
		t.Warnf(n, "", "a limit of 0 refuses every request")
	case r.Cost > r.Limit.Capacity():
		t.Warnf(f.Get("cost"), "", "the cost %d never fits into the limit of %d: every request is refused", r.Cost, r.Limit.Capacity())
	}
}

// placed returns n without the keys that belong to another level, which it
// reports, and without those that have no value and need none. Envoy's service
// ignores both.
func (p *parser) placed(n *yamltext.Node, what string, known []string, compat Compat) *yamltext.Node {
	if n.Kind != yamltext.Map {
		return n
	}
	here := *n
	here.Pairs = slices.DeleteFunc(slices.Clone(n.Pairs), func(field yamltext.Pair) bool {
		key := field.Key.Text
		if slices.Contains(known, key) {
			return p.isEmpty(field)
		}
		home := homeOf(key)
		if home == "" {
			return false
		}
		if compat == CompatEnvoy && isEnvoyKey(key) {
			p.Warnf(field.Key, "", "%q belongs %s, not in %s, where it has no effect", key, home, what)
		} else {
			p.Errorf(field.Key, "", "%q belongs %s, not in %s", key, home, what)
		}
		return true
	})
	return &here
}

// isEmpty reports, and warns of, a key without a value that may be left out.
func (p *parser) isEmpty(field yamltext.Pair) bool {
	key := field.Key.Text
	if field.Value.Kind != yamltext.Null || key == "key" || key == "domain" || key == "limits" || key == "compat" {
		return false
	}
	hint := ""
	if key == "rate_limit" {
		hint = "what matches is not limited"
	}
	p.Warnf(field.Key, hint, "%q has no value", key)
	return true
}

// homeOf says where a key of the descriptor form belongs.
func homeOf(key string) string {
	switch {
	case key == "domain" || key == "compat" || key == "merge_domains":
		return "at the top of the file"
	case slices.Contains(descriptorKeys(), key):
		return "in a descriptor"
	case slices.Contains(rateLimitKeys(), key):
		return "under rate_limit"
	}
	return ""
}

// isEnvoyKey reports whether envoyproxy/ratelimit knows the key, and so ignores
// it where it does not belong.
func isEnvoyKey(key string) bool {
	return key == "domain" || slices.Contains(descriptorKeys(), key) || slices.Contains(envoyLimitKeys(), key)
}

// maxScope is from how many bytes on the path of a scope is cut and hashed.
const maxScope = 200

// pathScope writes a path so that no two are the same, and none is the name of
// a rule of Headgate's own form: |key=value|key.
func pathScope(path []*step) string {
	var b strings.Builder
	write := func(mark byte, text string) {
		b.WriteByte(mark)
		for i := range len(text) {
			switch c := text[i]; c {
			case '%', '|', '=':
				fmt.Fprintf(&b, "%%%02X", c)
			default:
				b.WriteByte(c)
			}
		}
	}
	for _, s := range path {
		write('|', s.key)
		if s.kind != bareStep {
			write('=', s.value)
		}
	}
	if b.Len() <= maxScope {
		return b.String()
	}
	sum := sha256.Sum256([]byte(b.String()))
	return strings.ToValidUTF8(b.String()[:maxScope-64], "") + "#" + hex.EncodeToString(sum[:]) + "#"
}

// pathName writes a path for people and metrics, as Envoy's service does, with
// the characters that a name may have: key_value.key.
func pathName(path []*step) string {
	var parts []string
	for i := range path {
		parts = append(parts, path[i].composite())
	}
	return strings.Map(func(c rune) rune {
		if c < unicode.MaxASCII && (unicode.IsLetter(c) || unicode.IsDigit(c)) || strings.ContainsRune("-_.:/", c) {
			return c
		}
		return '_'
	}, strings.Join(parts, "."))
}

// nameDescriptors gives every rule of the descriptor form a name that no other
// of its domain has: its path, with a hash behind if that is taken or too long.
func (p *parser) nameDescriptors() {
	const hashed = 1 + 8
	for i := range p.branches {
		b := &p.branches[i]
		if b.rule == nil {
			continue
		}
		r := b.rule
		byName := p.set.domains[r.Domain].byName
		r.Name = pathName(r.steps)
		if len(r.Name) > maxRule-hashed || byName[r.Name] != nil {
			h := fnv.New32a()
			_, _ = h.Write([]byte(pathScope(r.steps)))
			r.Name = r.Name[:min(len(r.Name), maxRule-hashed)] + "-" + hex.EncodeToString(h.Sum(nil))
		}
		for byName[r.Name] != nil {
			r.Name += "x" // two hashes of 32 bits that are the same
		}
		byName[r.Name] = r
	}
}
