package rules

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/diagnostic"
)

// Builder builds a Ruleset from what parsers have read. Only the Builder compiles and
// indexes rules. It must be used by one goroutine.
type Builder struct {
	set      *Ruleset
	digester *digester
	members  [16]byte // see newMemberSecret

	// All descriptors in file order, and by their place.
	branches []*Branch
	places   map[place]*Branch
}

// NewBuilder returns an empty Builder. The secret is for hashed parts of keys: see
// [KeySecret]. computed are additional attributes that rules may use.
func NewBuilder(secret KeySecret, computed ...Computed) *Builder {
	b := &Builder{
		set:      &Ruleset{domains: map[string]*domain{}, byScope: map[string][]*Rule{}},
		digester: newDigester(secret), members: newMemberSecret(secret),
		places: map[place]*Branch{},
	}
	for _, c := range computed {
		if b.set.computed == nil {
			b.set.computed = map[string]func(Request) (string, bool){}
		}
		b.set.computed[c.Name] = c.Of
	}
	return b
}

// Domain adds a domain, even if it stays without rules.
func (b *Builder) Domain(name string) { b.domain(name) }

func (b *Builder) domain(name string) *domain {
	d := b.set.domains[name]
	if d == nil {
		d = &domain{byName: map[string]*Rule{}}
		b.set.domains[name] = d
	}
	return d
}

// SetHeaders sets the dialect of the rate-limit headers of a domain. at is the position
// in the file. It returns the domain's dialect and its position, and false if that is
// another one.
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

// Add adds a rule that applies to the requests that match describes. It fails if the
// name is already used in the domain. A disabled rule only reserves its name.
func (b *Builder) Add(r *Rule, match Match) error {
	d := b.domain(r.Domain)
	if first := d.byName[r.Name]; first != nil {
		return fmt.Errorf("duplicate name %s in domain %s: first in %s", clip.Quote(r.Name), clip.Quote(r.Domain), first.Position())
	}
	d.byName[r.Name] = r
	if d.notes(r); r.Disabled {
		b.set.stats.Disabled++
		return nil
	}
	r.match, r.digester, r.zone = match.compile(), b.digester, noZone
	if r.Values != nil {
		r.Values.parts = append(slices.Clip(r.Key), KeyAttribute{Attribute: r.Values.Of})
		r.Values.secret = b.members
		r.Values.scope = r.Scope + " of " + r.Values.Of.String() // no name has a space
	}
	r.byPath = slices.ContainsFunc(r.parts(), func(a KeyAttribute) bool { return a.Kind == Path })
	d.rules = append(d.rules, r)
	b.set.rules = append(b.set.rules, r)
	b.set.byScope[r.Scope] = append(b.set.byScope[r.Scope], r)
	return nil
}

// Ruleset returns the rules that have been added. files is the number of files,
// warnings the warnings about them. The Builder must not be used afterwards.
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
		d.claimsExempt = d.lists != nil && d.lists.allowByClaims() || d.tree != nil && d.tree.root.readsClaims()
		s.names = append(s.names, name)
	}
	for i, r := range s.rules {
		r.Index, r.Headers = i, s.domains[r.Domain].headers.dialect
		r.setMarking()
		s.concurrent = s.concurrent || r.Concurrent()
		s.queues = s.queues || r.OnLimit.Action == Queue
		if r.OnLimit.Action == Queue || r.OnLimit.Action == Delay {
			s.domains[r.Domain].waits = true
		}
		if r.given != nil {
			r.given.begin(r)
		}
		if r.table != nil {
			r.table.make(r)
			s.tables = append(s.tables, r.table)
		}
	}
	for _, l := range s.lists {
		l.rule.Headers = s.domains[l.Domain].headers.dialect
	}
	slices.Sort(s.names)
	s.stats.Domains, s.stats.Rules, s.stats.Files = len(s.names), len(s.rules), files
	s.warnings = warnings
	return s
}

// Match describes the requests that a rule applies to: those for which every condition
// holds.
type Match struct {
	Method, Path, Host Texts
	// ExactPath makes paths case-sensitive.
	ExactPath               bool
	Addresses, NotAddresses []netip.Prefix
	Values                  []ValueMatch
}

// Texts requires a match with one of Any, if there are some, and with none of Not.
type Texts struct{ Any, Not []Pattern }

// Holds reports whether a value fulfils t.
func (t *Texts) Holds(text string) bool {
	is := func(p Pattern) bool { return p.match(text) }
	return !slices.ContainsFunc(t.Not, is) && (len(t.Any) == 0 || slices.ContainsFunc(t.Any, is))
}

// ValueMatch is a condition on the text of an attribute.
type ValueMatch struct {
	Attribute
	Texts
	Presence Presence
	Tier     bool // the condition chooses a tier
}

// compile prepares m for matching.
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
