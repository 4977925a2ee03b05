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
)

// rateLimit reads the rate_limit of a descriptor. The rule stands where the
// descriptor does, at.
func (t *treeForm) rateLimit(n *node, what string, at *node, path []*step) *Rule {
	what = "the rate_limit of " + what
	before := t.errors
	f := t.fields(t.placed(n, what, rateLimitKeys(), t.compat), what, rateLimitKeys())
	if n.kind != mapKind {
		return nil
	}
	r := &Rule{
		Domain: t.domainName, Percent: 100, Cost: 1, LocalShare: 1,
		OnLimit: OnLimit{Action: Reject, Status: 429},
		File:    t.file, Line: at.line, Column: at.column,
		steps: path, flat: t.compat == CompatEnvoy,
	}
	r.Limit = t.descriptorLimit(f, n, t.errors > before)
	t.readName(f, r)
	t.readReplaces(f, r)
	t.parseNumbers(f, r)
	t.parsePolicies(f, r)
	if n := f.get("on_limit"); n != nil {
		t.parseOnLimit(n, r)
	}
	t.parseNotes(f, r)
	if t.errors == before {
		t.warnOfDescriptor(f, r)
	}
	t.identify(r)
	if t.errors == before {
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
func (t *treeForm) descriptorLimit(f fields, at *node, refused bool) headgate.Limit {
	l := limitForm{
		parser: t.parser, f: f, at: at,
		algorithm: headgate.FixedWindow, plain: t.compat == CompatEnvoy,
	}
	before := t.errors
	if n := f.get("unlimited"); n != nil {
		if yes, ok := t.flag(n, "unlimited"); yes || !ok {
			if !t.junkUnit(&l) {
				l.refuseBeside("unlimited: true", "unit")
			}
			l.refuseBeside("unlimited: true", limitKeys()...)
			if field, ok := f["requests_per_unit"]; ok {
				t.warnf(field.key, "", "\"requests_per_unit\" has no effect beside unlimited: true")
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
	n := l.f.get("requests_per_unit")
	switch {
	case n != nil:
		if t.compat == CompatEnvoy {
			n = inDecimal(n)
		}
		l.rate.N, _ = t.integer(n, "requests_per_unit", 0, headgate.MaxLimit)
	case refused:
	case t.compat == CompatEnvoy:
		t.warnf(l.at, "", "\"requests_per_unit\" is missing: every request is refused")
	default:
		t.errorf(l.at, "0 refuses every request", "\"requests_per_unit\" is missing")
	}
}

// inDecimal returns n, a number in whatever notation of YAML 1.1, as Envoy's
// service reads it: of 010, 0o10, 0x8 and 0b1000 each is 8.
func inDecimal(n *node) *node {
	if n.kind != numberKind && n.kind != textKind {
		return n
	}
	v, err := strconv.ParseInt(strings.ReplaceAll(n.text, "_", ""), 0, 64)
	if err != nil || !strings.HasPrefix(n.text, "0") {
		return n
	}
	here := *n
	here.kind, here.text = numberKind, strconv.FormatInt(v, 10)
	return &here
}

// junkUnit reports, and warns of, a unit beside unlimited that is none, which
// Envoy's service overlooks.
func (t *treeForm) junkUnit(l *limitForm) bool {
	n := l.f.get("unit")
	if t.compat != CompatEnvoy || n == nil || slices.Contains(envoyUnits(), strings.ToLower(n.text)) {
		return false
	}
	t.warnf(n, "", "the unit %s is not known, and has no effect beside unlimited: true", quote(n.text))
	return true
}

func envoyUnits() []string {
	return []string{"second", "minute", "hour", "day", "week", "month", "year"}
}

// readPeriod reads unit or period.
func (t *treeForm) readPeriod(l *limitForm, refused bool) {
	unit, period := l.f.get("unit"), l.f.get("period")
	switch {
	case unit != nil && period != nil:
		t.errorf(l.f["period"].key, "", "give either \"unit\" or \"period\", not both")
	case unit != nil:
		t.readUnit(unit, l)
	case period == nil && refused:
	case period == nil:
		t.errorf(l.at, "for example unit: minute, or period: 30s", "\"unit\" is missing")
	case period.kind != textKind && period.kind != numberKind:
		t.errorf(period, "", "\"period\" must be text such as 30s, not %s", period.kind)
	default:
		var err error
		if l.rate.Period, l.rate.Unit, err = parsePeriod(period.text); err != nil {
			t.errorf(period, "", "%v", err)
		}
	}
}

// readUnit reads a unit of Envoy's, in whatever case.
func (t *treeForm) readUnit(n *node, l *limitForm) {
	known := envoyUnits()
	if n.kind != textKind {
		t.errorf(n, "for other lengths use period, such as period: 90s", "\"unit\" must be one of %s, not %s", strings.Join(known, ", "), n.kind)
		return
	}
	word := n.text
	lower := strings.ToLower(word)
	if !slices.Contains(known, lower) {
		near := didYouMean(word, known)
		hint := ""
		if near == "" {
			hint = "known are " + strings.Join(known, ", ") + "; for other lengths use period, such as period: 30s"
		}
		t.errorf(n, hint, "unknown unit %s%s", quote(word), near)
		return
	}
	u, _ := unitOf(lower)
	l.rate.Period, l.rate.Unit = u.length, u.calendar
}

// readName reads the name that clients and replaces know the limit by.
func (t *treeForm) readName(f fields, r *Rule) {
	n := f.get("name")
	if n == nil {
		return
	}
	name, ok := t.scalar(n, "name")
	switch {
	case !ok:
	case name == "":
		t.warnf(n, "", "\"name\" is empty")
	case len(name) > maxDomain:
		t.errorf(n, "", "the name %s must have at most %d bytes", quote(name), maxDomain)
	default:
		r.LimitName = name
	}
}

// readReplaces reads the names of limits that this one takes the place of.
func (t *treeForm) readReplaces(f fields, r *Rule) {
	list := f.get("replaces")
	if list == nil {
		return
	}
	if list.kind != listKind {
		t.errorf(list, "for example replaces: [{name: other}]", "\"replaces\" must be a list, not %s", list.kind)
		return
	}
	for _, item := range list.items {
		inner := t.fields(item, "an entry of replaces", []string{"name"})
		n := inner.get("name")
		if n == nil {
			if item.kind == mapKind && !hasKey(item, "name") {
				t.errorf(item, "", "\"name\" is missing in an entry of replaces")
			}
			continue
		}
		name, ok := t.scalar(n, "name")
		switch {
		case !ok:
		case name == "":
			t.errorf(n, "", "\"name\" is empty in an entry of replaces")
		case name == r.LimitName:
			t.errorf(n, "", "the limit %s cannot replace itself", quote(name))
		case slices.Contains(r.Replaces, name):
			t.warnf(n, "", "%s is replaced twice", quote(name))
		default:
			r.Replaces = append(r.Replaces, name)
			t.replaces = append(t.replaces, parsedReplace{limitName{t.domainName, name}, n, t.reporter})
			t.replaced[limitName{t.domainName, name}] = true
		}
	}
}

// warnOfDescriptor warns of numbers that make the rule refuse all.
func (t *treeForm) warnOfDescriptor(f fields, r *Rule) {
	n := f.get("requests_per_unit")
	if n == nil {
		n = f.get("rate")
	}
	switch {
	case r.Limit.IsUnlimited() || n == nil:
	case r.Limit.N() == 0:
		t.warnf(n, "", "a limit of 0 refuses every request")
	case r.Cost > r.Limit.Capacity():
		t.warnf(f.get("cost"), "", "the cost %d never fits into the limit of %d: every request is refused", r.Cost, r.Limit.Capacity())
	}
}

// placed returns n without the keys that belong to another level, which it
// reports, and without those that have no value and need none. Envoy's service
// ignores both.
func (p *parser) placed(n *node, what string, known []string, compat Compat) *node {
	if n.kind != mapKind {
		return n
	}
	here := *n
	here.pairs = slices.DeleteFunc(slices.Clone(n.pairs), func(field pair) bool {
		key := field.key.text
		if slices.Contains(known, key) {
			return p.isEmpty(field)
		}
		home := homeOf(key)
		if home == "" {
			return false
		}
		if compat == CompatEnvoy && isEnvoyKey(key) {
			p.warnf(field.key, "", "%q belongs %s, not in %s, where it has no effect", key, home, what)
		} else {
			p.errorf(field.key, "", "%q belongs %s, not in %s", key, home, what)
		}
		return true
	})
	return &here
}

// isEmpty reports, and warns of, a key without a value that may be left out.
func (p *parser) isEmpty(field pair) bool {
	key := field.key.text
	if field.value.kind != nullKind || key == "key" || key == "domain" || key == "limits" || key == "compat" {
		return false
	}
	hint := ""
	if key == "rate_limit" {
		hint = "what matches is not limited"
	}
	p.warnf(field.key, hint, "%q has no value", key)
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
