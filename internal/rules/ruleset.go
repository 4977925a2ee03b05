package rules

import (
	"slices"

	"github.com/headgate/headgate/internal/base/diagnostic"
)

// headersChoice is a domain's own dialect of header fields.
type headersChoice struct {
	dialect string // empty if it has none
	at      string // file:line:column
}

// Ruleset is an immutable set of rules. Match finds the rules that apply to a request,
// and their keys.
//
// Any number of goroutines may use it without a lock. A reload builds a new Ruleset and
// swaps a pointer; in-flight requests finish on the old one. Only the [Builder] writes
// to rules and maps, before it returns the Ruleset. State of a request is in a
// [Matches], which one goroutine uses at a time.
//
// Matching has three steps, unless a list has the request (see [List]):
//
//  1. Facts. An attribute is read only when a rule needs it. Method, host and path are
//     normalised once for all rules. A path may have several readings, and all of them
//     count, since servers differ in how they read it. The same holds for headers and
//     cookies (see package spelling).
//  2. Candidates. Each of Headgate's own rules is indexed by the condition that it
//     shares with the fewest rules: a path, a host, an address prefix, a value of an
//     attribute, a literal part of a pattern with stars, or a method. A few look-ups
//     return all rules that could apply, and matcher.applies selects those that do,
//     without repeating what the index proved.
//  3. Checks. addCheck makes a check of each rule that applies: its key, the cost, and
//     whether the rule is enforced for this key. Keys are composed in the scratch space
//     of the Matches, so that a match allocates nothing.
//
// Descriptors form a tree. For ordered entries, find walks it from the top; for other
// requests, matchAttributes tries every key that the request has a value for.
//
// Everything that depends only on the rules is computed when they are built. A new
// condition needs a field of [Match], a line in its compile and in matcher.applies,
// and, if it should be indexed, a posting; a test compares the index with a scan of all
// rules.
//
// The bytes of keys (docs/decisions/0004), scopes, and the keys that a percentage
// covers must not change: stores outlive this process, and all processes must agree.
type Ruleset struct {
	domains  map[string]*domain
	names    []string
	rules    []*Rule
	byScope  map[string][]*Rule
	warnings []diagnostic.Diagnostic
	stats    Stats

	concurrent bool // there is a rule that is
	queues     bool // there is a rule that does
	tables     []*Table
	lists      []*List
	computed   map[string]func(Request) (string, bool)
}

// domain is one namespace of rules.
type domain struct {
	rules  []*Rule
	byName map[string]*Rule
	index  *index
	tree   *tree  // nil without descriptors
	lists  *lists // nil without lists
	// claimsExempt reports whether limits that read no claims may not apply to a
	// request because of its claims.
	claimsExempt bool
	waits        bool                      // a rule queues or delays
	counted      map[KeyAttribute]struct{} // what is in keys of rules, without segments, also of disabled ones

	headers    headersChoice
	priorities *Priorities // nil without classes
}

// Waits reports whether a rule of the domain lets requests over its limit wait: it queues or delays.
func (s *Ruleset) Waits(domain string) bool {
	d := s.domains[domain]
	return d != nil && d.waits
}

// Domains returns the names of all domains, sorted.
func (s *Ruleset) Domains() []string { return slices.Clone(s.names) }

// Rules returns all rules that are not disabled, in the order of the files.
func (s *Ruleset) Rules() []*Rule { return slices.Clone(s.rules) }

// Rule returns the rule of that name in a domain, or nil.
func (s *Ruleset) Rule(domain, name string) *Rule {
	if d := s.domains[domain]; d != nil {
		return d.byName[name]
	}
	return nil
}

// InScope returns the rules with that [Rule.Scope], which the caller must not change.
func (s *Ruleset) InScope(scope string) []*Rule { return s.byScope[scope] }

// OfLimit returns the rules in a scope that are of the same limit as the rule of that name: this
// one first, then those of its other tiers. Under compat: envoy other limits may share the scope.
func (s *Ruleset) OfLimit(scope, domain, name string) (same []*Rule) {
	limit := name
	if r := s.Rule(domain, name); r != nil && !r.Disabled && r.Scope == scope {
		same, limit = append(same, r), r.untiered()
	}
	for _, r := range s.byScope[scope] {
		if r.Domain == domain && r.Name != name && r.untiered() == limit {
			same = append(same, r)
		}
	}
	return same
}

// Headers returns the dialect of header fields that a domain has chosen, or "".
func (s *Ruleset) Headers(domain string) string {
	if d := s.domains[domain]; d != nil {
		return d.headers.dialect
	}
	return ""
}

// ClaimsExempt reports whether claims of a token can exempt a request from limits of a
// domain that read none: by an allow list, or by descriptors that are below theirs, or
// that replace them.
func (s *Ruleset) ClaimsExempt(domain string) bool {
	d := s.domains[domain]
	return d != nil && d.claimsExempt
}

// Stats returns how much was read.
func (s *Ruleset) Stats() Stats { return s.stats }

// Warnings returns the warnings about the files: legal, but probably a mistake.
func (s *Ruleset) Warnings() []diagnostic.Diagnostic { return slices.Clone(s.warnings) }

// maxScratch is the most memory, in bytes, that a Matches keeps for later
// after a request with large values.
const maxScratch = 64 << 10

// Match fills m.Checks with the rules of the domain that apply to req, each with its
// key, and reports whether the domain is known. Headgate's own rules come first, in
// file order, then descriptors. At most one descriptor applies to an
// [OrderedRequest]. To other requests all descriptors apply whose keys and values are
// among the attributes, without those that they replace. (For the several descriptors
// of one request see [ApplyReplaces] and [Ruleset.JoinLists].) Rules that do not hold now are
// among the checks: see [Rule.Holds]. Match allocates nothing once m is warm.
//
// The keys point into m and, like m.Checks, are valid until m is used again.
func (s *Ruleset) Match(domain string, req Request, m *Matches) (known bool) {
	m.Checks, m.shares = m.Checks[:0], m.shares[:0]
	m.listed = listed{}
	d := s.domains[domain]
	if d == nil {
		return false
	}
	f := m.factsOf(s, req)
	if d.lists == nil || !d.lists.settle(&f, m) {
		d.match(&f, m)
	}
	m.forget(&f)
	return true
}

// classify finds out the class of a request, if the domain has classes.
func (d *domain) classify(f *facts) {
	if d.priorities != nil {
		f.class = d.priorities.class(f)
	}
}

// match adds the checks of rules.
func (d *domain) match(f *facts, m *Matches) {
	d.classify(f)
	m.candidates = d.index.candidates(f, m.candidates[:0])
	for _, i := range m.candidates {
		r := d.rules[i]
		if r.match.applies(f) {
			m.addRule(r, f)
		}
	}
	if d.tree == nil {
		return
	}
	if o, ok := f.req.(OrderedRequest); ok {
		d.tree.matchEntries(o.Descriptor(), f, m)
		return
	}
	d.tree.matchAttributes(&d.tree.root, f, m)
	m.applyReplaces()
}

// ApplyReplaces removes from the matches of one request the checks of rules that
// another rule of the request replaces, in any of the matches. Replaced rules still
// replace others.
func ApplyReplaces(matches []Matches) {
	var replaces bool
	for i := range matches {
		for j := range matches[i].Checks {
			replaces = replaces || len(matches[i].Checks[j].Rule.Replaces) > 0
		}
	}
	if !replaces {
		return
	}
	for i := range matches {
		for j := range matches[i].Checks {
			c := &matches[i].Checks[j]
			if c.Rule.flat && c.Rule.Limit.Rule().Unlimited {
				continue // as in Envoy's service, there is no limit to replace
			}
			for k := range matches {
				c.replaced = c.replaced || matches[k].replaces(c.Rule.LimitName)
			}
		}
	}
	for i := range matches {
		matches[i].dropReplaced()
	}
}

// applyReplaces is ApplyReplaces for a request with only these matches.
func (m *Matches) applyReplaces() {
	replaced := false
	for i := range m.Checks {
		c := &m.Checks[i]
		c.replaced = m.replaces(c.Rule.LimitName)
		replaced = replaced || c.replaced
	}
	if replaced {
		m.dropReplaced()
	}
}

// dropReplaced removes what has been marked.
func (m *Matches) dropReplaced() {
	m.Checks = slices.DeleteFunc(m.Checks, func(c Check) bool { return c.replaced })
}

// replaces reports whether one of the rules replaces those of that name.
func (m *Matches) replaces(name string) bool {
	if name == "" {
		return false
	}
	for i := range m.Checks {
		if slices.Contains(m.Checks[i].Rule.Replaces, name) {
			return true
		}
	}
	return false
}
