package rules

import (
	"crypto/sha256"
	"encoding/binary"
)

// choiceCursor is how far next has come.
type choiceCursor struct {
	asked uint8 // 1: the exact value, 2: the bare key too
	wild  wildcardCursor
}

// next returns the next descriptor that value matches, the most specific
// first, or nil.
func (c *choice) next(at *choiceCursor, value string) *Branch {
	if at.asked == 0 {
		at.asked = 1
		if b := c.exact[value]; b != nil {
			return b
		}
	}
	if at.asked == 1 {
		if w := c.wild.next(&at.wild, value); w != nil {
			return w.branch
		}
		at.asked = 2
		return c.bare
	}
	return nil
}

// find returns the descriptor that answers entries, of which there is at least
// one, or nil. Where the most specific descriptor leads nowhere it tries the
// next. Each descriptor of the tree is looked at once at most.
func (l *Level) find(entries []Entry) *Branch {
	c := l.byKey[entries[0].Key]
	if c == nil {
		return nil
	}
	var at choiceCursor
	for b := c.next(&at, entries[0].Value); b != nil; b = c.next(&at, entries[0].Value) {
		switch {
		case len(entries) == 1:
			if b.answers() {
				return b
			}
		case b.Below != nil:
			if found := b.Below.find(entries[1:]); found != nil {
				return found
			}
		}
	}
	return nil
}

// findJoined is find as Envoy's service does it: by composite keys, wildcards
// in the order of the file, and without a second try.
func (l *Level) findJoined(entries []Entry, scratch []byte) (*Branch, []byte) {
	start := len(scratch)
	for i := range entries {
		e := &entries[i]
		scratch = append(append(append(scratch[:start], e.Key...), '_'), e.Value...)
		b := l.joined[string(scratch[start:])]
		if b == nil {
			b = l.inexact(e.Key, view(scratch[start:]))
		}
		switch {
		case b == nil:
			return nil, scratch[:start]
		case i == len(entries)-1:
			return b, scratch[:start]
		case b.Below == nil:
			return nil, scratch[:start]
		}
		l = b.Below
	}
	return nil, scratch[:start]
}

// inexact returns the descriptor of l that an entry comes under, whose key and value
// are joined and are those of none, as Envoy's service finds it, or nil.
func (l *Level) inexact(key, joined string) *Branch {
	if w := l.wild.first(joined); w != nil {
		return w.branch
	}
	return l.joined[key]
}

// matchEntries adds the check of the limit that a descriptor comes under.
func (t *tree) matchEntries(entries []Entry, f *facts, m *Matches) {
	if len(entries) == 0 {
		return
	}
	var b *Branch
	if t.compat == CompatEnvoy {
		b, f.scratch = t.root.findJoined(entries, f.scratch)
	} else {
		b = t.root.find(entries)
	}
	if b != nil && b.Rule != nil {
		m.add(b.Rule, pathValues{entries: entries}, f)
	}
}

// answered says for which readings of a request there is an answer among some
// descriptors: a limit, or that there is none.
type answered uint8

const (
	forNone answered = iota
	forSome
	forAll
)

// and is what is answered of two readings, where a and b is of each.
func (a answered) and(b answered) answered {
	if a == b {
		return a
	}
	return forSome
}

// matchAttributes adds the checks of all limits whose keys, with their values,
// are among the attributes of a request, in whatever order and with whatever
// others; of descriptors with the same key it takes the most specific.
func (t *tree) matchAttributes(l *Level, f *facts, m *Matches) answered {
	found := forNone
	for _, c := range l.keys {
		if c.attribute.Kind == Path {
			found = max(found, t.matchPath(c, f, m))
			continue
		}
		v, here := f.get(c.attribute), forNone
		if !v.ok && c.attribute == (Attribute{Name: RemoteAddress}) {
			v = f.get(Attribute{Kind: ClientIP})
		}
		switch {
		case v.unclear:
			here = t.matchAny(c, f, m)
		case v.ok:
			here = t.matchChoice(c, v.text, f, m)
		}
		found = max(found, here)
	}
	return found
}

// matchPath is the same for the descriptors whose key is path: it adds those
// for any reading of it, also with the case of its letters folded.
func (t *tree) matchPath(c *choice, f *facts, m *Matches) answered {
	if !f.getPath().ok {
		return forNone
	}
	if f.paths.Beyond() {
		return t.matchAny(c, f, m)
	}
	found, before := forNone, f.reading
	f.several = f.several || len(f.paths.All()) > 1
	for i, text := range f.paths.All() {
		f.reading = i
		here := t.matchChoice(c, text, f, m)
		if folded := f.paths.Folded(i); folded != text {
			f.several = true
			here = max(here, t.matchChoice(c, folded, f, m)) // of a server that ignores case
		}
		if i > 0 {
			here = here.and(found)
		}
		found = here
	}
	f.reading = before
	return found
}

// matchAny adds the checks below all descriptors of one key, for a path or a value that
// may be anything.
func (t *tree) matchAny(c *choice, f *facts, m *Matches) answered {
	f.several = true
	for _, b := range c.all {
		if b.Rule != nil {
			m.add(b.Rule, pathValues{}, f)
		}
		if b.Below != nil {
			t.matchAttributes(b.Below, f, m)
		}
	}
	if len(c.all) > 0 {
		return forSome
	}
	return forNone
}

// matchChoice is the same for the descriptors of one key. It continues with less
// specific ones while there are readings without an answer.
func (t *tree) matchChoice(c *choice, value string, f *facts, m *Matches) answered {
	var at choiceCursor
	found := forNone
	for b := t.pick(c, &at, value); b != nil && found != forAll; b = t.pick(c, &at, value) {
		if b.answers() {
			found = forAll
		}
		if b.Rule != nil {
			m.add(b.Rule, pathValues{}, f)
		}
		if b.Below != nil {
			found = max(found, t.matchAttributes(b.Below, f, m))
		}
		if t.compat == CompatEnvoy {
			break
		}
	}
	return found
}

// pick is c.next in the order of the tree.
func (t *tree) pick(c *choice, at *choiceCursor, value string) *Branch {
	if t.compat != CompatEnvoy {
		return c.next(at, value)
	}
	if b := c.exact[value]; b != nil {
		return b
	}
	if w := c.wild.first(value); w != nil {
		return w.branch
	}
	return c.bare
}

// pathValues gives the keys and values of a path through a tree: the entries
// of a descriptor, or else attributes.
type pathValues struct{ entries []Entry }

func (p pathValues) at(i int, s *Step, f *facts) Entry {
	if p.entries != nil {
		return p.entries[i]
	}
	v := f.get(s.Attribute)
	if !v.ok {
		v = f.get(Attribute{Kind: ClientIP}) // as matchAttributes has found it
	}
	return Entry{s.Key, v.text}
}

// add adds the check of a rule of the tree.
func (m *Matches) add(r *Rule, values pathValues, f *facts) {
	start := len(f.keys)
	if r.flat {
		f.keys = r.appendFlat(f.keys, values, f)
	} else {
		for i, s := range r.steps {
			if s.Kind == BareStep || s.Kind == WildStep {
				f.keys = appendPart(f.keys, values.at(i, s, f).Value)
			}
		}
	}
	m.addCheck(r, view(f.keys[start:]), 0, f)
}

// appendFlat appends the key of the rule as Envoy's service joins it.
func (r *Rule) appendFlat(dst []byte, values pathValues, f *facts) []byte {
	return appendJoined(dst, r.Domain, len(r.steps), func(i int) Entry { return r.flatEntry(i, values, f) })
}

// appendJoined appends a key of one part: the domain, keys and values joined as
// Envoy's service joins them, with all the collisions that this has.
func appendJoined(dst []byte, domain string, entries int, at func(int) Entry) []byte {
	n := len(domain) + 1
	for i := range entries {
		e := at(i)
		n += len(e.Key) + len(e.Value) + 2
	}
	start := len(dst)
	if n <= maxKeyPart {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	dst = append(append(dst, domain...), '_')
	for i := range entries {
		e := at(i)
		dst = append(append(dst, e.Key...), '_')
		dst = append(append(dst, e.Value...), '_')
	}
	if n > maxKeyPart {
		sum := sha256.Sum256(dst[start:])
		dst = append(append(dst[:start], markHashed...), sum[:]...)
	}
	return dst
}

// flatEntry returns entry i as it is counted. What values that are counted
// together become is the rest of the composite key behind the entry's own key,
// as Envoy's service has it, be that of another length than the rule's.
func (r *Rule) flatEntry(i int, values pathValues, f *facts) Entry {
	s := r.steps[i]
	e := values.at(i, s, f)
	if s.Shared == "" {
		return e
	}
	e.Value = s.Shared
	if n := len(e.Key); len(s.Shared) > n && s.Shared[:n] == e.Key && s.Shared[n] == '_' {
		e.Value = s.Shared[n+1:]
	}
	return e
}
