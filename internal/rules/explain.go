package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/headgate/headgate/internal/base/clip"
)

// Explanation says whether and why a rule applies to a request.
type Explanation struct {
	Check        // of the request; only with a Rule and its Cost if the rule does not apply
	Applies bool // whether the rule counts the request
	// LimitFrom says where the limit comes from if not from the rule itself, such as
	// "customers.csv:812"; see [Rule.LimitFrom].
	LimitFrom string
	// ZoneFrom says which time zone the limit has and where that comes from, if not from
	// the rule itself, such as "Europe/Berlin, from jwt:zoneinfo".
	ZoneFrom string
	// Mismatches are the conditions that do not hold, in the order of the
	// documentation. There is at least one if the rule does not apply.
	Mismatches []Mismatch
}

// Mismatch is a condition of a rule that does not hold.
type Mismatch struct {
	Condition string `json:"condition"` // what was looked at: method, header:X-Plan, entry 2
	Want      string `json:"want"`      // what the rule requires, for people
	Got       string `json:"got"`       // what the request has, for people
}

// String says it in one line, such as "method: wants POST, is GET".
func (m Mismatch) String() string {
	return fmt.Sprintf("%s: wants %s, is %s", m.Condition, m.Want, m.Got)
}

// isAbsent is the Got of what the request does not have.
const isAbsent = "absent"

// Explain says for every rule of the domain whether it applies to req, and if not, why,
// in file order. A rule that counts the request under several keys appears once for
// each. Lists that have the request come first. The result agrees with [Ruleset.Match],
// but Explain looks at every rule and allocates. known is false for an unknown domain.
func (s *Ruleset) Explain(domain string, req Request) (list []Explanation, known bool) {
	lists, known := s.ExplainParts(domain, []Request{req})
	if !known {
		return nil, false
	}
	return lists[0], true
}

// ExplainParts explains a request of several parts, as [Ruleset.JoinLists] joins them.
func (s *Ruleset) ExplainParts(domain string, parts []Request) (lists [][]Explanation, known bool) {
	d := s.domains[domain]
	if d == nil {
		return nil, false
	}
	matches := make([]Matches, len(parts))
	for i, req := range parts {
		s.Match(domain, req, &matches[i])
	}
	s.JoinLists(domain, matches, func(i int) Request { return parts[i] })
	var settled *Rule
	for i := range matches {
		for j := range matches[i].Checks {
			if c := &matches[i].Checks[j]; c.Rule.list != nil && (c.Enforced || c.Rule.list.Kind == AllowList) {
				settled = c.Rule
			}
		}
	}
	for i, req := range parts {
		lists = append(lists, s.explain(d, req, &matches[i], settled))
	}
	return lists, true
}

// explain explains a part of a request with these matches. settled is the list, if any,
// that has allowed or denied the request, so that no rule applies.
func (s *Ruleset) explain(d *domain, req Request, m *Matches, settled *Rule) (list []Explanation) {
	var own Matches // since the keys are in m
	f := own.factsOf(s, req)
	checks := make(map[*Rule][]*Check, len(m.Checks))
	for i := range m.Checks {
		c := &m.Checks[i]
		checks[c.Rule.Base()] = append(checks[c.Rule.Base()], c)
		if l := c.Rule.list; l != nil {
			list = append(list, Explanation{
				Check: c.kept(), Applies: true, LimitFrom: l.entryOf(&f),
			})
		}
	}
	for _, r := range s.rules {
		if s.domains[r.Domain] != d {
			continue
		}
		for _, c := range checks[r] {
			list = append(list, Explanation{
				Check: c.kept(), Applies: true,
				LimitFrom: c.Rule.LimitFrom(c.Key), ZoneFrom: c.Rule.zoneFrom(&f),
			})
		}
		switch {
		case len(checks[r]) > 0:
		case settled != nil:
			list = append(list, Explanation{Check: Check{Rule: r, Cost: r.Cost}, Mismatches: []Mismatch{{
				Condition: "lists", Want: "a request that is on no list", Got: "on the list " + settled.Name,
			}}})
		case len(r.steps) > 0:
			list = append(list, Explanation{Check: Check{Rule: r, Cost: r.Cost}, Mismatches: d.tree.mismatches(r, &f)})
		default:
			list = append(list, Explanation{Check: Check{Rule: r, Cost: r.Cost}, Mismatches: r.mismatches(&f)})
		}
	}
	return list
}

// ExplainReplaces is [ApplyReplaces] for explanations: rules that another rule of the
// request replaces do not apply.
func ExplainReplaces(parts ...[]Explanation) {
	by := map[string]*Rule{}
	for _, list := range parts {
		for i := range list {
			if list[i].Applies {
				for _, name := range list[i].Rule.Replaces {
					by[name] = list[i].Rule
				}
			}
		}
	}
	delete(by, "")
	for _, list := range parts {
		for i := range list {
			if r := by[list[i].Rule.LimitName]; r != nil && list[i].Applies {
				list[i] = Explanation{Check: Check{Rule: list[i].Rule}, Mismatches: []Mismatch{{
					Condition: "replaces", Want: "not to be replaced",
					Got: fmt.Sprintf("replaced by %s (%s)", r.Name, r.Position()),
				}}}
			}
		}
	}
}

// mismatches returns why r, of Headgate's own form, does not apply.
func (r *Rule) mismatches(f *facts) []Mismatch {
	var out []Mismatch
	text := func(name string, c *textCondition, get func() value) {
		if c.isEmpty() {
			return
		}
		if v := get(); !c.applies(v) {
			out = append(out, c.mismatch(name, v))
		}
	}
	m := &r.match
	text("method", &m.method, f.getMethod)
	if !m.path.isEmpty() && !m.path.applies(f) {
		out = append(out, m.path.mismatch(f))
	}
	text("host", &m.host, f.getHost)
	if !m.addressApplies(f) {
		out = append(out, m.addressMismatch(f))
	}
	for i := range m.values {
		if x, ok := m.values[i].mismatch(f.get(m.values[i].attribute)); ok {
			out = append(out, x)
		}
	}
	if r.KeyMissing == KeyMissingSkip {
		for _, a := range r.Key {
			if !f.part(r, &a).ok {
				out = append(out, Mismatch{"key", fmt.Sprintf("a value of %s (key_missing: skip)", a.Plain()), isAbsent})
			}
		}
	}
	return out
}

// mismatch says why c, under that name, does not hold for v.
func (c *textCondition) mismatch(name string, v value) Mismatch {
	if v.ok && c.not.match(v.text) {
		return Mismatch{name, "anything but " + c.not.describe(v.text), shown(v)}
	}
	return Mismatch{name, c.any.describe(""), shown(v)}
}

// mismatch returns false if the condition holds.
func (c *valueMatch) mismatch(v value) (Mismatch, bool) {
	name := c.attribute.String()
	switch {
	case c.holds(v):
		return Mismatch{}, false
	case c.presence == Present && !v.ok:
		return Mismatch{name, "any value", isAbsent}, true
	case c.presence == Absent && v.ok:
		return Mismatch{name, "it to be absent", shown(v)}, true
	}
	return c.textCondition.mismatch(name, v), true
}

func (m *matcher) addressMismatch(f *facts) Mismatch {
	got := isAbsent
	a := f.getAddress()
	if a.IsValid() {
		got = a.String()
	}
	if a.IsValid() && m.notAddresses.contains(a) {
		around := func(p netip.Prefix) bool { return p.Contains(a) }
		return Mismatch{"client_ip", "anything but " + m.notAddresses.describe(around), got}
	}
	return Mismatch{"client_ip", m.addresses.describe(func(netip.Prefix) bool { return true }), got}
}

// describe lists the patterns; if match is not empty, only those that it
// matches.
func (l *patternList) describe(match string) string {
	var texts []string
	for _, p := range l.all {
		if match == "" || p.match(match) {
			texts = append(texts, show(sourceOf(p)))
		}
	}
	return oneOf(texts)
}

// sourceOf returns a pattern as the rules have it.
func sourceOf(p Pattern) string {
	switch p := p.(type) {
	case *glob:
		return p.source
	case *pathPattern:
		return p.source
	case *hostPattern:
		return p.source
	}
	text, _ := p.literal()
	return text
}

// oneOf lists alternatives for people.
func oneOf(texts []string) string {
	const most = 5
	if left := len(texts) - most; left > 0 {
		return fmt.Sprintf("%s or %d more", strings.Join(texts[:most], ", "), left)
	}
	if n := len(texts); n > 1 {
		return strings.Join(texts[:n-1], ", ") + " or " + texts[n-1]
	}
	return strings.Join(texts, "")
}

// shown writes a request's value for people.
func shown(v value) string {
	if !v.ok {
		return isAbsent
	}
	return show(v.text)
}

// show writes text for people: in quotes if it would be misread without, cut
// if it is long.
func show(text string) string {
	plain := text != "" && text != isAbsent && len(text) <= 60 && !strings.ContainsFunc(text, func(c rune) bool {
		return !unicode.IsPrint(c) || c == ' ' || c == '"' || c == ',' || c == unicode.ReplacementChar
	})
	if plain {
		return strings.Clone(text)
	}
	return clip.Quote(text)
}

// SortNearest sorts explanations stably: rules that apply first, then those with the
// fewest failing conditions.
func SortNearest(list []Explanation) {
	slices.SortStableFunc(list, func(a, b Explanation) int { return len(a.Mismatches) - len(b.Mismatches) })
}

// mismatches returns why r, of the descriptor form, does not apply.
func (t *tree) mismatches(r *Rule, f *facts) []Mismatch {
	if o, ok := f.req.(OrderedRequest); ok {
		return []Mismatch{t.entryMismatch(r, o.Descriptor())}
	}
	var out []Mismatch
	for i := range r.steps {
		s := r.steps[i]
		v := s.find(f)
		if !v.ok || !t.accepts(s, Entry{s.Key, v.text}) {
			out = append(out, Mismatch{show(s.Key), s.wants(), shown(v)})
		}
	}
	if out == nil {
		out = []Mismatch{secondTo(t.takenOfAttributes(r, f))}
	}
	return out
}

// entryMismatch is the first thing about a descriptor's entries that keeps r
// from applying.
func (t *tree) entryMismatch(r *Rule, entries []Entry) Mismatch {
	for i := range r.steps {
		s := r.steps[i]
		where := fmt.Sprintf("entry %d", i+1)
		if i == len(entries) {
			return Mismatch{where, s.describe(), isAbsent}
		}
		if e := entries[i]; !t.accepts(s, e) {
			return Mismatch{where, s.describe(), show(e.Key + "=" + e.Value)}
		}
	}
	if n := len(r.steps); len(entries) > n {
		e := entries[n]
		return Mismatch{fmt.Sprintf("entry %d", n+1), "no more entries", show(e.Key + "=" + e.Value)}
	}
	return secondTo(t.takenOfEntries(entries))
}

// secondTo is the mismatch of a rule whose own conditions hold.
func secondTo(b *Branch) Mismatch {
	got := "second to another"
	if b != nil {
		got = fmt.Sprintf("second to %s (%s)", b.describe(), b.Position())
	}
	return Mismatch{"descriptor", "to be the best match", got}
}

// describe writes a step for people: key=value, or key for any value.
func (s *Step) describe() string {
	if s.Kind == BareStep {
		return show(s.Key)
	}
	return show(s.Key + "=" + s.Value)
}

// wants says which value a step asks for.
func (s *Step) wants() string {
	if s.Kind == BareStep {
		return "any value"
	}
	return show(s.Value)
}

// find returns the value of a request that is no descriptor.
func (s *Step) find(f *facts) value {
	v := f.get(s.Attribute)
	if !v.ok && s.Attribute == (Attribute{Name: RemoteAddress}) {
		v = f.get(Attribute{Kind: ClientIP})
	}
	return v
}

// accepts reports whether a step alone would take an entry.
func (t *tree) accepts(s *Step, e Entry) bool {
	if t.compat == CompatEnvoy {
		joined := e.Key + "_" + e.Value
		if composite := s.Composite(); s.IsJoinedWild() {
			return newJoined(s, nil).match(joined) || composite == e.Key
		} else if s.Kind != BareStep {
			return composite == joined
		}
	}
	switch {
	case e.Key != s.Key:
		return false
	case s.Kind == BareStep:
		return true
	case s.Kind == ExactStep:
		return e.Value == s.Value
	}
	return newWildcard(s.Value, nil).match(e.Value)
}

// takenOfEntries returns the descriptor that a descriptor of a request comes
// under, also where it leads nowhere, or nil.
func (t *tree) takenOfEntries(entries []Entry) *Branch {
	if t.compat != CompatEnvoy {
		return t.root.find(entries)
	}
	var taken *Branch
	for l, i := &t.root, 0; i < len(entries); i++ {
		joined := entries[i].Key + "_" + entries[i].Value
		b := cmp.Or(l.joined[joined], l.inexact(entries[i].Key, joined))
		if b == nil {
			break
		}
		if taken = b; b.Below == nil {
			break
		}
		l = b.Below
	}
	return taken
}

// takenOfAttributes returns the descriptor that keeps r from applying to a
// request that is no descriptor, or nil.
func (t *tree) takenOfAttributes(r *Rule, f *facts) *Branch {
	l := &t.root
	for i := range r.steps {
		s := r.steps[i]
		c := l.byKey[s.Key]
		if c == nil {
			return nil
		}
		var own *Branch
		var at choiceCursor
		value := s.find(f).text
		for b := t.pick(c, &at, value); b != nil && own == nil; b = t.pick(c, &at, value) {
			var unused Matches
			switch {
			case b.Value == s.Value && b.Kind == s.Kind:
				own = b
			case t.compat == CompatEnvoy || b.answers() || b.Below != nil && t.matchAttributes(b.Below, f, &unused) == forAll:
				return b
			}
		}
		if own == nil || own.Below == nil {
			return nil
		}
		l = own.Below
	}
	return nil
}

// Conditions describes the requests that r applies to in one line, such as
// "method is POST, path is /v1/**". It is empty if r applies to all.
func (r *Rule) Conditions() string {
	var out []string
	for i := range r.steps {
		out = append(out, r.steps[i].describe())
	}
	out = r.match.method.summary(out, "method")
	out = r.match.path.summary(out, "path")
	out = r.match.host.summary(out, "host")
	out = r.match.addresses.summary(out, "client_ip is ")
	out = r.match.notAddresses.summary(out, "client_ip is not ")
	for i := range r.match.values {
		v := &r.match.values[i]
		out = append(out, v.sentence(v.attribute.String()))
	}
	for _, w := range r.when {
		out = append(out, "when "+w.String())
	}
	return strings.Join(out, ", ")
}

// sentence says what c asks of an attribute with this name.
func (c *valueMatch) sentence(name string) string {
	switch c.presence {
	case Present:
		return name + " is present"
	case Absent:
		return name + " is absent"
	case AnyPresence:
	}
	return strings.Join(c.summary(nil, name), ", ")
}

// summary appends what c says about an attribute, if it says anything.
func (c *textCondition) summary(out []string, name string) []string {
	if len(c.any.all) > 0 {
		out = append(out, name+" is "+c.any.describe(""))
	}
	if len(c.not.all) > 0 {
		out = append(out, name+" is not "+c.not.describe(""))
	}
	return out
}

// summary appends the addresses, if there are any.
func (s *addressSet) summary(out []string, start string) []string {
	if len(s.prefixes) == 0 {
		return out
	}
	return append(out, start+s.describe(func(netip.Prefix) bool { return true }))
}

// describe lists the addresses that show is true for.
func (s *addressSet) describe(show func(netip.Prefix) bool) string {
	var texts []string
	for _, p := range s.prefixes {
		if show(p) {
			text := p.String()
			if p.IsSingleIP() {
				text = p.Addr().String()
			}
			texts = append(texts, text)
		}
	}
	return oneOf(texts)
}
