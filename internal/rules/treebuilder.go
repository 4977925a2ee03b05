package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"strings"
	"unicode"

	"github.com/headgate/headgate/internal/base/clip"
)

// Tree returns the top of a domain's descriptors, which is new if there is none.
func (b *Builder) Tree(domain string, compat Compat) *Level {
	d := b.domain(domain)
	if d.tree == nil {
		d.tree = &tree{compat: compat}
	}
	return &d.tree.root
}

// IsEmpty reports whether there is no descriptor in l.
func (l *Level) IsEmpty() bool { return len(l.keys) == 0 }

// FiledBranch is a descriptor and its siblings.
type FiledBranch struct {
	*Branch
	compat   Compat
	parent   *Level
	siblings *choice   // the descriptors of the level with the same key
	same     *wildcard // the pattern before it that matches the same, if there is one
}

// place identifies a descriptor; no two may have the same. For CompatEnvoy the key
// is the composite one.
type place struct {
	level      *Level
	key, value string
	kind       StepKind
}

func placeOf(d *Branch, into *Level, compat Compat) place {
	switch {
	case compat == CompatEnvoy:
		return place{level: into, key: d.Composite()}
	case d.Kind == SharedStep:
		return place{into, d.Key, d.Value, WildStep}
	}
	return place{into, d.Key, d.Value, d.Kind}
}

// AddBranch adds a descriptor, with its rule, to a level. It fails if there is already
// one with the same key and value.
func (b *Builder) AddBranch(into *Level, d *Branch, compat Compat) (*FiledBranch, error) {
	where := placeOf(d, into, compat)
	if first := b.places[where]; first != nil {
		return nil, fmt.Errorf("duplicate descriptor composite key %s: first in %s", clip.Quote(d.Composite()), first.Position())
	}
	b.places[where] = d
	c := into.byKey[d.Key]
	if c == nil {
		c = &choice{attribute: d.Attribute, exact: map[string]*Branch{}}
		if into.byKey == nil {
			into.byKey, into.joined = map[string]*choice{}, map[string]*Branch{}
		}
		into.byKey[d.Key] = c
		into.keys = append(into.keys, c)
	}
	d.order = len(b.branches)
	filed := &FiledBranch{Branch: d, compat: compat, parent: into, siblings: c}
	c.all = append(c.all, d)
	switch d.Kind {
	case ExactStep:
		c.exact[d.Value] = d
	case BareStep:
		c.bare = d
	case WildStep, SharedStep:
		filed.same = c.wild.add(newWildcard(d.Value, d))
	}
	if compat == CompatEnvoy {
		into.joined[d.Composite()] = d
		if d.IsJoinedWild() {
			into.wild.add(newJoined(&d.Step, d))
		}
	}
	b.branches = append(b.branches, d)
	if d.Rule != nil {
		b.domain(d.Rule.Domain).notes(d.Rule)
		b.set.rules = append(b.set.rules, d.Rule)
	}
	return filed, nil
}

// SetPath makes r, whose limit is known, the rule of a descriptor: path leads to it
// through the tree. It sets what the counts of r belong to.
func (r *Rule) SetPath(path []*Step, compat Compat) {
	r.steps = path
	if compat == CompatEnvoy {
		r.join()
		return
	}
	r.Scope = ScopeOf(r.Domain, pathScope(path))
	for _, s := range path {
		if s.Kind == BareStep || s.Kind == WildStep {
			r.Key = append(r.Key, KeyAttribute{Attribute: s.Attribute})
		}
	}
}

// maxScope is from how many bytes on the path of a scope is cut and hashed.
const maxScope = 200

// pathScope writes a path so that no two are the same, and none is the name of
// a rule of Headgate's own form: |key=value|key.
func pathScope(path []*Step) string {
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
		write('|', s.Key)
		if s.Kind != BareStep {
			write('=', s.Value)
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
func pathName(path []*Step) string {
	var parts []string
	for i := range path {
		parts = append(parts, path[i].Composite())
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
func (b *Builder) nameDescriptors() {
	const hashed = 1 + 8
	for _, d := range b.branches {
		r := d.Rule
		if r == nil {
			continue
		}
		byName := b.set.domains[r.Domain].byName
		r.Name = pathName(r.steps)
		if len(r.Name) > MaxName-hashed || byName[r.Name] != nil {
			h := fnv.New32a()
			_, _ = h.Write([]byte(pathScope(r.steps)))
			r.Name = r.Name[:min(len(r.Name), MaxName-hashed)] + "-" + hex.EncodeToString(h.Sum(nil))
		}
		for byName[r.Name] != nil {
			r.Name += "x" // two hashes of 32 bits that are the same
		}
		byName[r.Name] = r
	}
}

// CoveredBy returns the descriptor that takes precedence for everything that b would
// match, or nil. It must be called after all descriptors have been added.
func (b *FiledBranch) CoveredBy() *Branch {
	switch {
	case b.compat == CompatEnvoy:
		return b.coveredInOrder()
	case b.same != nil:
		return b.same.branch
	case b.Kind == BareStep && b.Below == nil:
		// A lone star is preferred and matches every value. Requests that end
		// here are its, if it has an answer for them.
		var at wildcardCursor
		if w := b.siblings.wild.next(&at, anyText); w != nil && w.branch.answers() {
			return w.branch
		}
	}
	return nil
}

// coveredInOrder returns the wildcard before b in the file that matches all
// that b does.
func (b *FiledBranch) coveredInOrder() *Branch {
	switch {
	case b.IsJoinedWild():
		w := b.parent.wild.covering(newJoined(&b.Step, b.Branch))
		if w != nil && w.branch.order < b.order {
			return w.branch
		}
	case b.Kind == BareStep:
		if w := b.parent.wild.first(b.Key + "_" + anyText); w != nil {
			return w.branch
		}
	}
	return nil
}

// IsUseless reports whether b limits nothing and exempts nothing, since no other
// descriptor of its key would limit what it matches.
func (b *FiledBranch) IsUseless() bool {
	if b.Rule != nil || b.Below != nil {
		return false
	}
	switch b.Kind {
	case BareStep:
		return true
	case WildStep, SharedStep:
		return b.siblings.bare == nil && !b.siblings.manyWild()
	case ExactStep:
	}
	return len(b.siblings.wild.lengths) == 0 && b.siblings.bare == nil
}

// manyWild reports whether there are at least two patterns.
func (c *choice) manyWild() bool {
	n := 0
	for _, g := range c.wild.byPrefix {
		n += len(g.bySuffix) + len(g.others)
	}
	return n > 1
}
