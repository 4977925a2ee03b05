package rules

import (
	"slices"

	"github.com/headgate/headgate/store"
)

// addRule adds the check of one of Headgate's own rules; one for each path, or segment,
// if it counts by a path that has several readings.
func (m *Matches) addRule(r *Rule, f *facts) {
	if !r.byPath || !f.getPath().ok || len(f.paths.All()) == 1 || f.paths.Beyond() {
		m.addKeys(r, f)
		return
	}
	f.several = true
	for f.reading = range f.paths.All() {
		if r.match.path.covers(f.paths, f.reading) {
			m.addKeys(r, f)
		}
	}
	f.reading = 0
}

// addKeys adds the check of a rule under the current key of f. It adds none if a value is
// missing and r is not to apply then. One unclear part makes all that the client writes
// unclear: a key of several parts gives it one further count too, not one for each part.
func (m *Matches) addKeys(r *Rule, f *facts) {
	start := len(f.keys)
	end := start // of the key
	unclear := len(r.Key) > 1 && f.unclearIn(r.Key)
	parts := r.parts()
	for i := range parts {
		a := &parts[i]
		v := f.part(r, a)
		if !v.ok && r.KeyMissing == KeyMissingSkip {
			f.keys = f.keys[:start]
			return
		}
		if unclear && i < len(r.Key) && a.isWritten() {
			v = f.unclear()
		}
		f.keys = r.appendKeyPart(f.keys, a, v, f)
		if i < len(r.Key) {
			end = len(f.keys)
		}
	}
	member := uint64(0)
	if r.Values != nil {
		member = r.Values.memberOf(view(f.keys[end:]))
	}
	m.addCheck(r, view(f.keys[start:end]), member, f)
}

// addCheck adds the check of a rule under a key, and of a value if r counts values, unless it exists: several readings of
// a request may lead to it.
func (m *Matches) addCheck(r *Rule, key string, member uint64, f *facts) {
	if f.several &&
		slices.ContainsFunc(m.Checks, func(c Check) bool { return c.Rule.Base() == r && c.Key == key && c.Member == member }) {
		return
	}
	if r.varies() {
		r = r.forRequest(key, f)
	}
	var share *store.Share
	if r.Fair != nil {
		m.shares = append(m.shares, r.Fair.share(r, f))
		share = &m.shares[len(m.shares)-1]
	}
	m.Checks = append(m.Checks, Check{Share: share, Rule: r, Key: key, Member: member, Cost: r.costOf(f), Enforced: r.Enforces(key), Class: f.class})
}

// unclearIn reports whether a part of a key that the client writes is unclear.
func (f *facts) unclearIn(key []KeyAttribute) bool {
	return slices.ContainsFunc(key, func(a KeyAttribute) bool { return a.isWritten() && f.get(a.Attribute).unclear })
}

// isWritten reports whether a client writes the value of a as it likes.
func (a *Attribute) isWritten() bool {
	return a.Kind == Header || a.Kind == Query || a.Kind == Cookie || a.Kind == JWT
}

// appendKeyPart appends the part of r's key for one attribute.
func (r *Rule) appendKeyPart(dst []byte, a *KeyAttribute, v value, f *facts) []byte {
	switch {
	case !v.ok:
		return append(dst, markMissing...)
	case a.Segment > 0: // in the form that keys have it
	case a.Kind == Path:
		v.text = r.match.path.key(f.paths, f.paths.PlainOf(f.reading))
	case !v.unclear:
		v.text = formOf(a.Attribute).Key(v.text)
	}
	if a.Hashed {
		return r.digester.appendPart(dst, v.text)
	}
	return appendPart(dst, v.text)
}

// Enforces reports whether r is enforced for this key, and not in shadow mode.
func (r *Rule) Enforces(key string) bool {
	if r.Mode != Enforce {
		return false
	}
	return r.Percent >= 100 || r.Percent > 0 && share(r.Scope, key) < r.Percent
}
