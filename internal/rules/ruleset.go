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

// Ruleset is a set of rules that was read as a whole, and the question that every
// request asks of it: which of these limits apply, and under which keys?
//
// It never changes. Any number of goroutines match against it without a lock, and a
// reload makes another one and swaps a pointer; who has begun with the old one ends
// with it. Rules, the slices in them and the Ruleset's maps are therefore written by
// its [Builder] alone, before anybody else sees them. What changes from request to
// request is in a [Matches], which one goroutine has at a time and uses again.
//
// A request finds its rules in three steps.
//
//  1. Its facts. A request is asked for an attribute only when a rule needs it. The
//     method, the host and the path are brought into one form once for all rules; a
//     path may be read in several ways, and each of them counts, since nobody knows
//     which the server behind takes. So may a header or a cookie (see package
//     spelling): a value that servers read differently is counted under each.
//  2. Candidates. Each rule of Headgate's own form stands in the domain's index under
//     one of its conditions, the one that it shares with the fewest rules: a path, a
//     host, a prefix of addresses, a value of an attribute, or a method. A few
//     look-ups give all rules that could apply, be they one or ten thousand, and
//     matcher.applies tells those that do. What the index has proved, it does not ask
//     again.
//  3. Checks. Each rule that applies becomes a check in addCheck: its key, what the
//     request costs, whether the rule enforces for this key. Keys are composed in the
//     scratch space of the Matches, so that a match allocates nothing.
//
// Descriptors, Envoy's form, are a tree and no list: for entries in their order, find
// walks it from the top, and for a request that is none, matchAttributes tries every
// key that it has a value for. They end in addCheck as well.
//
// All that depends on the rules alone is worked out when they are built: the patterns
// are parsed and their literals put into maps, the index is chosen, scopes and names
// are composed, limits are compiled. A new condition needs a field of [Match], a line
// in its compile and in matcher.applies, and, if it should find rules, a posting; the
// test that compares the index with a scan of all rules finds what was forgotten.
//
// What may not change is in docs/decisions: the bytes of keys (0004) and scopes name
// counts that are running, in stores that outlive this process, and the share of keys
// that a percentage enforces for is the same in every process.
type Ruleset struct {
	domains  map[string]*domain
	names    []string
	rules    []*Rule
	warnings []diagnostic.Diagnostic
	stats    Stats

	concurrent bool // there is a rule that is
	queues     bool // there is a rule that does
	computed   map[string]func(Request) (string, bool)
}

// domain is a namespace of rules.
type domain struct {
	rules  []*Rule
	byName map[string]*Rule
	index  *index
	tree   *tree // nil without descriptors

	headers headersChoice
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

// Stats returns how much was read.
func (s *Ruleset) Stats() Stats { return s.stats }

// Warnings returns what is legal in the files but hardly meant.
func (s *Ruleset) Warnings() []diagnostic.Diagnostic { return slices.Clone(s.warnings) }

// maxScratch is the most memory, in bytes, that a Matches keeps for later
// after a request with large values.
const maxScratch = 64 << 10

// Match fills m.Checks with the rules of the domain that apply to req, each
// with its key, and reports whether the domain is known: first those of
// Headgate's own form, in the order of the files, then those of the descriptor
// form. Of the latter at most one applies to an [OrderedRequest]; to any other
// all whose keys and values are among its attributes, and what these replace is
// left out. (The descriptors of one request replace each other: see
// [ApplyReplaces].) Match allocates nothing once m has been used for such a
// request.
//
// The keys point into m and, like m.Checks, are good until m is used again.
func (s *Ruleset) Match(domain string, req Request, m *Matches) (known bool) {
	m.Checks = m.Checks[:0]
	d := s.domains[domain]
	if d == nil {
		return false
	}
	f := m.factsOf(s, req)
	m.candidates = d.index.candidates(&f, m.candidates[:0])
	for _, i := range m.candidates {
		r := d.rules[i]
		if r.match.applies(&f) {
			m.addRule(r, &f)
		}
	}
	if d.tree != nil {
		if o, ok := req.(OrderedRequest); ok {
			d.tree.matchEntries(o.Descriptor(), &f, m)
		} else {
			before := len(m.Checks)
			d.tree.matchAttributes(&d.tree.root, &f, m)
			if f.tooMany {
				m.refuseSince(before)
			}
			m.applyReplaces()
		}
	}
	m.forget(&f)
	return true
}

// ApplyReplaces removes from the matches of one request those checks whose
// rules are replaced by another rule that applies to the request, in whichever
// of the matches. Rules that are replaced replace others all the same.
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
			if c.Rule.flat && c.Rule.Limit.IsUnlimited() {
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

// applyReplaces is ApplyReplaces for a request that has only these.
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
