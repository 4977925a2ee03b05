package rules

import (
	"fmt"
)

// mismatches returns why r, of the descriptor form, does not apply.
func (t *tree) mismatches(r *Rule, f *facts) []Mismatch {
	if o, ok := f.req.(OrderedRequest); ok {
		return []Mismatch{t.entryMismatch(r, o.Descriptor())}
	}
	var out []Mismatch
	for i := range r.steps {
		s := r.steps[i]
		v := s.find(f)
		if !v.ok || !t.accepts(s, Entry{s.key, v.text}) {
			out = append(out, Mismatch{show(s.key), s.wants(), shown(v)})
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
func secondTo(b *branch) Mismatch {
	got := "second to another"
	if b != nil {
		got = fmt.Sprintf("second to %s (%s)", b.describe(), b.position())
	}
	return Mismatch{"descriptor", "to be the best match", got}
}

// describe writes a step for people: key=value, or key for any value.
func (s *step) describe() string {
	if s.kind == bareStep {
		return show(s.key)
	}
	return show(s.key + "=" + s.value)
}

// wants says which value a step asks for.
func (s *step) wants() string {
	if s.kind == bareStep {
		return "any value"
	}
	return show(s.value)
}

// find returns the value of a request that is no descriptor.
func (s *step) find(f *facts) value {
	v := f.get(s.attribute)
	if !v.ok && s.attribute == (Attribute{Name: remoteAddress}) {
		v = f.get(Attribute{Kind: ClientIP})
	}
	return v
}

// accepts reports whether a step alone would take an entry.
func (t *tree) accepts(s *step, e Entry) bool {
	if t.compat == CompatEnvoy {
		joined := e.Key + "_" + e.Value
		if composite := s.composite(); s.isPrefix() {
			return newPrefix(composite, nil).match(joined) || composite == e.Key
		} else if s.kind != bareStep {
			return composite == joined
		}
	}
	switch {
	case e.Key != s.key:
		return false
	case s.kind == bareStep:
		return true
	case s.kind == exactStep:
		return e.Value == s.value
	}
	return newWildcard(s.value, nil).match(e.Value)
}

// takenOfEntries returns the descriptor that a descriptor of a request comes
// under, also where it leads nowhere, or nil.
func (t *tree) takenOfEntries(entries []Entry) *branch {
	if t.compat != CompatEnvoy {
		return t.root.find(entries)
	}
	var taken *branch
	for l, i := &t.root, 0; i < len(entries); i++ {
		joined := entries[i].Key + "_" + entries[i].Value
		b := l.joined[joined]
		if b == nil {
			if w := l.wild.first(joined); w != nil {
				b = w.branch
			}
		}
		if b == nil {
			b = l.joined[entries[i].Key]
		}
		if b == nil {
			break
		}
		taken = b
		if b.below == nil {
			break
		}
		l = b.below
	}
	return taken
}

// takenOfAttributes returns the descriptor that keeps r from applying to a
// request that is no descriptor, or nil.
func (t *tree) takenOfAttributes(r *Rule, f *facts) *branch {
	l := &t.root
	for i := range r.steps {
		s := r.steps[i]
		c := l.byKey[s.key]
		if c == nil {
			return nil
		}
		var own *branch
		var at choiceCursor
		value := s.find(f).text
		for b := t.pick(c, &at, value); b != nil && own == nil; b = t.pick(c, &at, value) {
			var unused Matches
			switch {
			case b.value == s.value && b.kind == s.kind:
				own = b
			case t.compat == CompatEnvoy || b.answers() || b.below != nil && t.matchAttributes(b.below, f, &unused):
				return b
			}
		}
		if own == nil || own.below == nil {
			return nil
		}
		l = own.below
	}
	return nil
}
