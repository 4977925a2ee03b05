package rules

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/diagnostic"
)

// Builder makes a Ruleset. Parsers add to it what they have read; here, and
// nowhere else, a rule is compiled and filed. It is for one goroutine.
type Builder struct {
	set      *Ruleset
	digester *digester

	// Of descriptors: all of them in the order of the files, and where each stands.
	branches []*Branch
	places   map[place]*Branch
}

// NewBuilder returns a Builder of no rules. The secret is that of hashed parts of
// keys: see [KeySecret]. Computed are attributes that rules may use besides those that
// requests have.
func NewBuilder(secret KeySecret, computed ...Computed) *Builder {
	b := &Builder{
		set:      &Ruleset{domains: map[string]*domain{}},
		digester: newDigester(secret),
		places:   map[place]*Branch{},
	}
	for _, c := range computed {
		if b.set.computed == nil {
			b.set.computed = map[string]func(Request) (string, bool){}
		}
		b.set.computed[c.Name] = c.Of
	}
	return b
}

// Domain makes a domain known, be it one without rules.
func (b *Builder) Domain(name string) { b.domain(name) }

func (b *Builder) domain(name string) *domain {
	d := b.set.domains[name]
	if d == nil {
		d = &domain{byName: map[string]*Rule{}}
		b.set.domains[name] = d
	}
	return d
}

// SetHeaders chooses the dialect of header fields of a domain. at is where a file
// says so. It returns the choice before, and its place, if there was another.
func (b *Builder) SetHeaders(domain, dialect, at string) (before, beforeAt string, ok bool) {
	d := b.domain(domain)
	if d.headers.dialect == "" {
		d.headers = headersChoice{dialect, at}
	}
	return d.headers.dialect, d.headers.at, d.headers.dialect == dialect
}

// Rules returns the rules so far, in the order of the files. The caller must not
// change the slice.
func (b *Builder) Rules() []*Rule { return b.set.rules }

// Add adds a rule that applies to what match says. The error is that its name is
// taken in its domain. A rule that is disabled only takes its name.
func (b *Builder) Add(r *Rule, match Match) error {
	d := b.domain(r.Domain)
	if first := d.byName[r.Name]; first != nil {
		return fmt.Errorf("duplicate name %s in domain %s: first in %s", clip.Quote(r.Name), clip.Quote(r.Domain), first.Position())
	}
	d.byName[r.Name] = r
	if r.Disabled {
		b.set.stats.Disabled++
		return nil
	}
	r.match, r.digester = match.compile(), b.digester
	r.byPath = slices.ContainsFunc(r.Key, func(a KeyAttribute) bool { return a.Kind == Path })
	d.rules = append(d.rules, r)
	b.set.rules = append(b.set.rules, r)
	return nil
}

// Ruleset returns what has been added. files is of how many files it comes, and
// warnings is what to say of them. The Builder must not be used any more.
func (b *Builder) Ruleset(files int, warnings []diagnostic.Diagnostic) *Ruleset {
	s := b.set
	b.nameDescriptors()
	for name, d := range s.domains {
		for rule, r := range d.byName {
			if r.Disabled {
				delete(d.byName, rule)
			}
		}
		d.index = newIndex(d.rules)
		s.names = append(s.names, name)
	}
	for i, r := range s.rules {
		r.Index, r.Headers = i, s.domains[r.Domain].headers.dialect
		s.concurrent = s.concurrent || r.Concurrent()
		s.queues = s.queues || r.OnLimit.Action == Queue
	}
	slices.Sort(s.names)
	s.stats.Domains, s.stats.Rules, s.stats.Files = len(s.names), len(s.rules), files
	s.warnings = warnings
	return s
}

// Match says which requests a rule applies to: those that every condition holds
// for.
type Match struct {
	Method, Path, Host Texts
	// ExactPath says that the case of letters in paths counts.
	ExactPath               bool
	Addresses, NotAddresses []netip.Prefix
	Values                  []ValueMatch
}

// Texts asks for any of some patterns, if there are some, and none of others.
type Texts struct{ Any, Not []Pattern }

// Holds reports whether a value is as t asks.
func (t *Texts) Holds(text string) bool {
	is := func(p Pattern) bool { return p.match(text) }
	return !slices.ContainsFunc(t.Not, is) && (len(t.Any) == 0 || slices.ContainsFunc(t.Any, is))
}

// ValueMatch is a condition on an attribute that is just text.
type ValueMatch struct {
	Attribute
	Texts
	Presence Presence
	Tier     bool // says that the condition chooses a tier
}

// compile makes of m what matching needs.
func (m *Match) compile() matcher {
	out := matcher{
		method: m.Method.compile(), host: m.Host.compile(),
		addresses: newAddressSet(m.Addresses), notAddresses: newAddressSet(m.NotAddresses),
		path: pathCondition{textCondition: m.Path.compile(), exact: m.ExactPath},
	}
	out.path.setEndings()
	if !m.ExactPath {
		out.path.any = out.path.any.folded()
	}
	for _, v := range m.Values {
		out.values = append(out.values, valueMatch{v.Attribute, v.Presence, v.Tier, v.compile()})
	}
	return out
}

func (t *Texts) compile() textCondition {
	return textCondition{newPatternList(t.Any), newPatternList(t.Not)}
}
