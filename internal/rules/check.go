package rules

import (
	"math"
	"slices"
	"strings"
)

// addRule adds the check of a rule of Headgate's own form; one for each path,
// if it counts by the path and that can be read as several.
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

// addKeys adds the check of a rule under the key that f has now; several, if f has
// several values of an attribute of it.
func (m *Matches) addKeys(r *Rule, f *facts) {
	if f.valued != nil && m.addSeveral(r, f) {
		return
	}
	key, ok := r.composeKey(f)
	if f.disputed && m.addSeveral(r, f) { // a door that knows one value of each
		return
	}
	if ok {
		m.addCheck(r, key, f)
	}
}

// addCheck adds the check of a rule under a key, unless it is there: several
// readings of a request may lead to it.
func (m *Matches) addCheck(r *Rule, key string, f *facts) {
	if f.several &&
		slices.ContainsFunc(m.Checks, func(c Check) bool { return c.Rule == r && c.Key == key }) {
		return
	}
	m.Checks = append(m.Checks, Check{Rule: r, Key: key, Cost: r.costOf(f), Enforced: r.Enforces(key)})
}

// composeKey joins the values that r counts by. It reports false if one is
// missing and r is not to apply then.
func (r *Rule) composeKey(f *facts) (string, bool) {
	// The values first: looking them up may use the scratch space too, and
	// the key has to be in one piece.
	for _, a := range r.Key {
		if !f.get(a.Attribute).ok && r.KeyMissing == KeyMissingSkip {
			return "", false
		}
	}
	start := len(f.scratch)
	for _, a := range r.Key {
		f.scratch = r.appendKeyPart(f.scratch, a, f.get(a.Attribute), f)
	}
	return view(f.scratch[start:]), true
}

// appendKeyPart appends what r counts by of one attribute.
func (r *Rule) appendKeyPart(dst []byte, a KeyAttribute, v value, f *facts) []byte {
	switch {
	case !v.ok:
		return append(dst, markMissing...)
	case a.Kind == Path:
		v.text = r.match.path.key(f.paths, f.plain)
	case a.Kind == Cookie:
		v.text = strings.ReplaceAll(v.text, "+", " ") // to some servers it is one
	}
	if a.Hashed {
		return r.digester.appendPart(dst, v.text)
	}
	return appendPart(dst, v.text)
}

// Enforces reports whether r refuses requests with this key, rather than only
// observing them.
func (r *Rule) Enforces(key string) bool {
	if r.Mode != Enforce {
		return false
	}
	return r.Percent >= 100 || r.Percent > 0 && share(r.Scope, key) < r.Percent
}

const (
	// MaxValues is how many values of an attribute a request may have under a
	// rule that counts by it.
	MaxValues = 8
	// maxKeys is under how many keys a rule counts one request.
	maxKeys = 16
)

// addSeveral adds the checks of r for a request with several values of an
// attribute that it counts by, or with one that is disputed, and reports false for
// any other request: one check for every choice of one value each. They are all
// charged, or none is. No honest request comes to more than maxKeys: one that does
// costs more than fits into any limit, for what it means to its upstream nobody
// knows.
func (m *Matches) addSeveral(r *Rule, f *facts) bool {
	choices, keys := r.choices(f)
	if choices == nil {
		return false
	}
	f.several = true
	if keys > maxKeys {
		before := len(m.Checks)
		m.addChoice(r, f, func(i int, v value) value {
			if !v.ok && len(choices[i]) > 0 {
				return choices[i][0]
			}
			return v
		})
		m.refuseSince(before)
		return true
	}
	for taken := make([]int, len(choices)); ; {
		m.addChoice(r, f, func(i int, v value) value {
			if n := taken[i]; n > 0 {
				return choices[i][n-1]
			}
			return v
		})
		if !next(taken, choices) {
			return true
		}
	}
}

// refuseSince makes the checks from one on cost more than fits into any limit.
func (m *Matches) refuseSince(first int) {
	for i := range m.Checks[first:] {
		m.Checks[first+i].Cost = math.MaxInt64
	}
}

// choices returns, for each attribute of r's key, what it may be counted by besides
// its first value, and how many keys come of it, up to maxKeys and one more; nil if
// there is one.
func (r *Rule) choices(f *facts) (choices [][]value, keys int) {
	keys = 1
	for i, a := range r.Key {
		first := mayBeUnclear(a.Attribute) && f.get(a.Attribute).unclear
		texts, unclear := f.others(a.Attribute)
		unclear = unclear || first
		if len(texts) == 0 && !unclear {
			continue
		}
		if choices == nil {
			choices = make([][]value, len(r.Key))
		}
		for _, text := range texts {
			choices[i] = append(choices[i], value{text: text, ok: true})
		}
		if unclear {
			choices[i] = append(choices[i], value{unclear: true})
		}
		keys = min(keys*(1+len(choices[i])), maxKeys+1)
		if len(texts) >= MaxValues {
			keys = maxKeys + 1
		}
	}
	return choices, keys
}

// addChoice adds a check of r for some values of its key. What is missing because
// it is unclear is no reason to skip it.
func (m *Matches) addChoice(r *Rule, f *facts, choose func(i int, v value) value) {
	for i, a := range r.Key { // which may use the scratch space; see composeKey
		if v := choose(i, f.get(a.Attribute)); !v.ok && !v.unclear && r.KeyMissing == KeyMissingSkip {
			return
		}
	}
	start := len(f.scratch)
	for i, a := range r.Key {
		f.scratch = r.appendKeyPart(f.scratch, a, choose(i, f.get(a.Attribute)), f)
	}
	m.addCheck(r, view(f.scratch[start:]), f)
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

// CountedValue returns the form in which keys have a value of the attribute, for
// operators who name a key by what a client has sent.
func CountedValue(a Attribute, text string) string {
	text = meant(a, text).text
	if a.Kind == Cookie {
		text = strings.ReplaceAll(text, "+", " ")
	}
	return text
}
