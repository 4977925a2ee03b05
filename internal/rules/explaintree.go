package rules

import "fmt"

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
		if composite := s.Composite(); s.IsPrefix() {
			return newPrefix(composite, nil).match(joined) || composite == e.Key
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
		if b.Below == nil {
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
			case t.compat == CompatEnvoy || b.answers() || b.Below != nil && t.matchAttributes(b.Below, f, &unused):
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
