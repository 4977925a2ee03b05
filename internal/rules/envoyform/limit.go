package envoyform

import (
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/ownform"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/internal/rules/yamltext"
	"github.com/headgate/headgate/store"
)

// rateLimit reads the rate_limit of a descriptor. The rule has the position of the
// descriptor, at.
func (t *treeForm) rateLimit(n *yamltext.Node, what string, at *yamltext.Node, path []*rules.Step) *rules.Rule {
	what = "the rate_limit of " + what
	before := t.Errors
	r, l := ownform.NewRule(t.domain, t.File, at), ownform.LimitForm{Parser: t.Parser.Parser, At: n, Algorithm: headgate.FixedWindow, Epoch: t.compat == rules.CompatEnvoy}
	_, keys := t.known()
	f := t.Fields(t.Placed(n, what, keys, t.compat), what, keys)
	if n.Kind != yamltext.Map {
		return nil
	}
	l.Keys = f
	r.Limit = t.descriptorLimit(&l, t.Errors > before)
	t.readName(f, r)
	t.readReplaces(f, r)
	form.ReadFields(t.Report, f, t.SharedKeys(r))
	t.CheckMarks(f, r)
	if t.Errors == before {
		t.WarnOfAll(f, r, "requests_per_unit", "rate")
	}
	r.SetPath(path, t.compat)
	if t.Errors == before {
		t.WarnOfNone(f, r)
	}
	return r
}

// descriptorLimit reads the limit: requests_per_unit with unit or period, or rate, or
// unlimited. If a key has been refused already, it does not report missing ones, since
// that is probably what was meant.
func (t *treeForm) descriptorLimit(l *ownform.LimitForm, refused bool) headgate.Limit {
	before, f := t.Errors, l.Keys
	if n := f.Get("unlimited"); n != nil {
		if yes, ok := t.flag(n, "unlimited"); yes || !ok {
			if !t.junkUnit(l) {
				l.RefuseBeside("unlimited: true", "unit")
			}
			l.RefuseBeside("unlimited: true", ownform.LimitKeys()...)
			if field, ok := f["requests_per_unit"]; ok {
				t.Warnf(field.Key, "", "\"requests_per_unit\" has no effect with unlimited: true")
			}
			return headgate.Unlimited()
		}
	}
	if hasField(f, "rate") {
		l.RefuseBeside("rate", "unit", "requests_per_unit")
		l.ReadRate()
	} else {
		t.readCount(l, refused)
		t.readPeriod(l, refused)
	}
	l.ReadAlgorithm()
	if l.Rate.Unlimited {
		l.RefuseBeside("rate: unlimited", ownform.LimitKeys()[1:]...)
		return headgate.Unlimited()
	}
	return l.Finish(before)
}

// readCount reads requests_per_unit.
func (t *treeForm) readCount(l *ownform.LimitForm, refused bool) {
	n := l.Keys.Get("requests_per_unit")
	switch {
	case n != nil:
		if t.compat == rules.CompatEnvoy {
			n = inDecimal(n)
		}
		l.Rate.N, _ = t.Integer(n, "requests_per_unit", 0, store.MaxLimit)
	case refused:
	case t.compat == rules.CompatEnvoy:
		t.Warnf(l.At, "", "\"requests_per_unit\" is missing: every request is refused")
	default:
		t.Errorf(l.At, "to refuse every request, set it to 0", "\"requests_per_unit\" is missing")
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

// junkUnit reports, and warns about, an invalid unit next to unlimited, which Envoy's
// service ignores.
func (t *treeForm) junkUnit(l *ownform.LimitForm) bool {
	n := l.Keys.Get("unit")
	if t.compat != rules.CompatEnvoy || n == nil || slices.Contains(envoyUnits(), strings.ToLower(n.Text)) {
		return false
	}
	t.Warnf(n, "", "unknown unit %s, which has no effect with unlimited: true", clip.Quote(n.Text))
	return true
}

func envoyUnits() []string {
	return []string{"second", "minute", "hour", "day", "week", "month", "year"}
}

// readPeriod reads unit or period.
func (t *treeForm) readPeriod(l *ownform.LimitForm, refused bool) {
	unit, period := l.Keys.Get("unit"), l.Keys.Get("period")
	switch {
	case unit != nil && period != nil:
		t.Errorf(l.Keys["period"].Key, "", "give either \"unit\" or \"period\", not both")
	case unit != nil:
		t.readUnit(unit, l)
	case period == nil && refused:
	case period == nil:
		t.Errorf(l.At, "for example unit: minute, or period: 30s", "\"unit\" is missing")
	case period.Kind != yamltext.Text && period.Kind != yamltext.Number:
		t.Errorf(period, "", "\"period\" must be a duration such as 30s, not %s", period.Kind)
	default:
		var err error
		if l.Rate.Period, l.Rate.Unit, err = rate.ParsePeriod(period.Text); err != nil {
			t.Errorf(period, "", "%v", err)
		}
	}
}

// readUnit reads a unit of Envoy's, in whatever case.
func (t *treeForm) readUnit(n *yamltext.Node, l *ownform.LimitForm) {
	known := envoyUnits()
	if n.Kind != yamltext.Text {
		t.Errorf(n, "for other lengths use period, such as period: 90s", "\"unit\" must be one of %s, not %s", strings.Join(known, ", "), n.Kind)
		return
	}
	lower := strings.ToLower(n.Text)
	if !slices.Contains(known, lower) {
		t.Unknown(n, "unit", "", known, "; for other lengths use period, such as period: 30s")
		return
	}
	u, _ := rate.UnitOf(lower)
	l.Rate.Period, l.Rate.Unit = u.Length, u.Calendar
}

// maxLimitName is the longest name of a limit, in bytes.
const maxLimitName = 256

// readName reads the limit's name for clients and replaces.
func (t *treeForm) readName(f yamltext.Fields, r *rules.Rule) {
	n := f.Get("name")
	if n == nil {
		return
	}
	name, ok := t.scalar(n, "name")
	switch {
	case !ok:
	case name == "":
		t.Warnf(n, "", "\"name\" is empty")
	case len(name) > maxLimitName:
		t.Errorf(n, "", "the name %s is longer than %d bytes", clip.Quote(name), maxLimitName)
	default:
		r.LimitName = name
	}
}

// readReplaces reads the names of limits that this one replaces.
func (t *treeForm) readReplaces(f yamltext.Fields, r *rules.Rule) {
	list := f.Get("replaces")
	if list == nil {
		return
	}
	if list.Kind != yamltext.List {
		t.Errorf(list, "for example replaces: [{name: other}]", "\"replaces\" must be a list, not %s", list.Kind)
		return
	}
	for _, item := range list.Items {
		inner := t.Fields(item, "an entry of replaces", form.Keys(replaceKeys()))
		n := inner.Get("name")
		if n == nil {
			if item.Kind == yamltext.Map && !yamltext.HasKey(item, "name") {
				t.Errorf(item, "", "an entry of replaces has no \"name\"")
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
			t.replaces = append(t.replaces, parsedReplace{ownform.LimitName{Domain: t.domain, Name: name}, n, t.Report})
			t.Replace(ownform.LimitName{Domain: t.domain, Name: name})
		}
	}
}

// Placed returns n without keys that belong to another level, which it reports, and
// without optional keys that have no value. Envoy's service ignores both.
func (p *Parser) Placed(n *yamltext.Node, what string, known []string, compat rules.Compat) *yamltext.Node {
	if n.Kind != yamltext.Map {
		return n
	}
	here := *n
	here.Pairs = slices.DeleteFunc(slices.Clone(n.Pairs), func(field yamltext.Pair) bool {
		key := field.Key.Text
		if slices.Contains(known, key) {
			return p.isEmpty(field)
		}
		home := p.homeOf(key)
		if home == "" {
			return false
		}
		if compat == rules.CompatEnvoy && p.isEnvoyKey(key) {
			p.Warnf(field.Key, "", "%q belongs %s, not in %s, where it has no effect", key, home, what)
		} else {
			p.Errorf(field.Key, "", "%q belongs %s, not in %s", key, home, what)
		}
		return true
	})
	return &here
}

// isEmpty reports, and warns of, a key without a value that may be left out.
func (p *Parser) isEmpty(field yamltext.Pair) bool {
	key := field.Key.Text
	if field.Value.Kind != yamltext.Null || key == "key" || key == "domain" || key == "limits" || key == "compat" {
		return false
	}
	hint := ""
	if key == "rate_limit" {
		hint = "matching requests are not limited"
	}
	p.Warnf(field.Key, hint, "%q has no value", key)
	return true
}

// homeOf says where a key of the descriptor form belongs.
func (p *Parser) homeOf(key string) string {
	descriptor, rateLimit := p.known()
	switch {
	case key == "domain" || key == "compat" || key == "merge_domains":
		return "at the top of the file"
	case slices.Contains(descriptor, key):
		return "in a descriptor"
	case slices.Contains(rateLimit, key):
		return "under rate_limit"
	}
	return ""
}

// isEnvoyKey reports whether envoyproxy/ratelimit knows the key, and so ignores
// it where it does not belong.
func (p *Parser) isEnvoyKey(key string) bool {
	descriptor, _ := p.known()
	return key == "domain" || slices.Contains(descriptor, key) || slices.Contains(form.Keys(envoyLimitKeys()), key)
}

// Finish warns about descriptors that can never match or have no effect, and about
// replaces of unknown limits.
func (p *Parser) Finish() {
	for i := range p.branches {
		b := &p.branches[i]
		switch by := b.CoveredBy(); {
		case by != nil:
			b.report.Warnf(b.at, "", "the descriptor %s can never match: %s (%s) takes precedence for everything it would match",
				clip.Quote(b.Composite()), clip.Quote(by.Composite()), by.Position())
		case b.report.Errors == 0 && b.IsUseless(): // what is missing may be what is wrong
			b.report.Warnf(b.at, "", "the descriptor %s has no effect: it has no rate_limit, and exempts nothing that another descriptor limits", clip.Quote(b.Composite()))
		}
	}
	names := map[ownform.LimitName]bool{}
	known := map[string][]string{}
	for _, r := range p.Rules.Rules() {
		if r.LimitName != "" {
			names[ownform.LimitName{Domain: r.Domain, Name: r.LimitName}] = true
			known[r.Domain] = append(known[r.Domain], r.LimitName)
		}
	}
	for _, r := range p.replaces {
		if !names[r.LimitName] {
			const most = 1000 // names that are worth a comparison
			list := known[r.Domain]
			r.report.Warnf(r.at, "", "unknown limit %s in domain %s%s",
				clip.Quote(r.Name), clip.Quote(r.Domain), nearest.DidYouMean(r.Name, list[:min(len(list), most)]))
		}
	}
}
