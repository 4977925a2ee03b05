package rules

import (
	"math"
	"strings"
)

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
