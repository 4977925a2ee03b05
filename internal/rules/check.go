package rules

import (
	"math"
	"slices"
	"strings"
)

// addRule adds the check of one of Headgate's own rules; one for each path, if it counts
// by a path that has several readings.
func (m *Matches) addRule(r *Rule, f *facts) {
	if !r.byPath || !f.getPath().ok || len(f.paths.Plain()) == 1 {
		m.addKeys(r, f)
		return
	}
	f.several = true
	for f.plain = range f.paths.Plain() {
		if !r.match.path.counts(f.paths, f.plain) {
			continue
		}
		m.addKeys(r, f)
	}
	f.plain = 0
}

// addKeys adds the check of a rule under the current key of f, or several checks if f
// has several values of an attribute of the key. A request with more than maxKeys keys
// costs more than any limit allows: its meaning to the upstream is unknown.
func (m *Matches) addKeys(r *Rule, f *facts) {
	choices, keys := r.choices(f)
	if choices == nil {
		m.addChoice(r, f, nil, nil)
		return
	}
	f.several = true
	taken := make([]int, len(choices))
	if keys > maxKeys {
		for i, a := range r.parts() {
			if len(choices[i]) > 0 && !f.get(a.Attribute).ok {
				taken[i] = 1
			}
		}
		before := len(m.Checks)
		m.addChoice(r, f, choices, taken)
		m.refuseSince(before)
		return
	}
	for more := true; more; more = next(taken, choices) {
		m.addChoice(r, f, choices, taken)
	}
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
	m.Checks = append(m.Checks, Check{Rule: r, Key: key, Member: member, Cost: r.costOf(f), Enforced: r.Enforces(key)})
}

// appendKeyPart appends the part of r's key for one attribute.
func (r *Rule) appendKeyPart(dst []byte, a KeyAttribute, v value, f *facts) []byte {
	switch {
	case !v.ok:
		return append(dst, markMissing...)
	case a.Kind == Path:
		v.text = r.match.path.key(f.paths, f.plain)
	case a.Kind == Cookie:
		v.text = spacePlus(v.text)
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

// How often one request may count.
const (
	MaxValues = 8  // how many values of an attribute a request may have under a rule that counts by it
	maxKeys   = 16 // under how many keys a rule counts one request
)

// refuseSince makes the checks from one on cost more than fits into any limit.
func (m *Matches) refuseSince(first int) {
	for i := range m.Checks[first:] {
		m.Checks[first+i].Cost = math.MaxInt64
	}
}

// choices returns, for each attribute that r counts by, what it may be counted by besides
// its first value, and how many keys come of it, up to maxKeys and one more; nil if
// there is one.
func (r *Rule) choices(f *facts) (choices [][]value, keys int) {
	keys = 1
	for i, a := range r.parts() {
		first := f.get(a.Attribute).unclear
		texts, anything := f.others(a.Attribute)
		anything = anything || first
		if len(texts) == 0 && !anything {
			continue
		}
		if choices == nil {
			choices = make([][]value, len(r.parts()))
		}
		for _, text := range texts {
			choices[i] = append(choices[i], value{text: text, ok: true})
		}
		if anything {
			choices[i] = append(choices[i], value{unclear: true})
		}
		keys = min(keys*(1+len(choices[i])), maxKeys+1)
		if len(texts) >= MaxValues {
			keys = maxKeys + 1
		}
	}
	return choices, keys
}

// addChoice adds a check of r for some values of its key: those taken of the choices,
// or the request's first. It adds none if one is missing and r is not to apply then;
// what is missing because it is unclear is no reason for that.
func (m *Matches) addChoice(r *Rule, f *facts, choices [][]value, taken []int) {
	start := len(f.keys)
	end := start // of the key
	for i, a := range r.parts() {
		v := f.get(a.Attribute)
		if choices != nil && taken[i] > 0 {
			v = choices[i][taken[i]-1]
		}
		if !v.ok && !v.unclear && r.KeyMissing == KeyMissingSkip {
			f.keys = f.keys[:start]
			return
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

// next counts taken up by one, the first place first, and reports false when it
// is all zero again.
func next(taken []int, choices [][]value) bool {
	for i := range taken {
		if taken[i] < len(choices[i]) {
			taken[i]++
			return true
		}
		taken[i] = 0
	}
	return false
}

// spacePlus returns the value of a cookie as keys have it: to some servers a + is a
// space.
func spacePlus(text string) string { return strings.ReplaceAll(text, "+", " ") }
