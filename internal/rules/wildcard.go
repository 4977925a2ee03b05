package rules

import (
	"cmp"
	"slices"
	"strings"
)

// wildcards finds those of many patterns that a text matches, the most
// specific first: the one with the longest literal beginning, and of these the
// one with the most literal characters, and of these the first in the file.
// What it costs depends on how many different lengths the literal beginnings
// and ends have, not on how many patterns there are; only patterns with several
// stars and the same beginning are tried one by one.
type wildcards struct {
	lengths  []int // of the beginnings, the longest first
	byPrefix map[string]*wildcardGroup
}

// wildcardGroup are the patterns with the same literal beginning.
type wildcardGroup struct {
	lengths  []int // of the ends, the longest first
	bySuffix map[string]*wildcard
	others   []*wildcard // those with several stars, the most specific first
}

// wildcard is a pattern and its descriptor.
type wildcard struct {
	glob
	literals int
	branch   *Branch
}

// newWildcard reads a pattern. Unlike the globs of match it has no escape, as
// Envoy's have none. Stars in a row count as one.
func newWildcard(source string, b *Branch) *wildcard {
	parts := strings.Split(source, "*")
	inner := slices.DeleteFunc(parts[1:len(parts)-1], func(part string) bool { return part == "" })
	w := &wildcard{branch: b, glob: glob{source: source}}
	w.parts = append(append([]string{parts[0]}, inner...), parts[len(parts)-1])
	for _, part := range w.parts {
		w.literals += len(part)
	}
	return w
}

// newJoined reads the composite key of a step as Envoy's service does: the stars
// of the value are wildcards, and one at the end of a key without a value.
func newJoined(s *Step, b *Branch) *wildcard {
	literal, value := s.Key+"_", s.Value
	if s.Kind == BareStep {
		literal, value = strings.TrimSuffix(s.Key, "*"), "*"
	}
	w := newWildcard(value, b)
	w.source, w.parts[0], w.literals = s.Composite(), literal+w.parts[0], w.literals+len(literal)
	return w
}

// add files a pattern and returns nil, or the one before it that matches the
// same texts.
func (x *wildcards) add(w *wildcard) *wildcard {
	prefix, suffix := w.parts[0], w.parts[len(w.parts)-1]
	if x.byPrefix == nil {
		x.byPrefix = map[string]*wildcardGroup{}
	}
	g := x.byPrefix[prefix]
	if g == nil {
		g = &wildcardGroup{bySuffix: map[string]*wildcard{}}
		x.byPrefix[prefix] = g
		x.lengths = withLength(x.lengths, len(prefix))
	}
	if len(w.parts) == 2 {
		if same := g.bySuffix[suffix]; same != nil {
			return same
		}
		g.bySuffix[suffix] = w
		g.lengths = withLength(g.lengths, len(suffix))
		return nil
	}
	// Behind those that are as specific; of these one may be the same.
	at, _ := slices.BinarySearchFunc(g.others, w, func(a, b *wildcard) int {
		if a.literals >= b.literals {
			return -1
		}
		return 1
	})
	for i := at - 1; i >= 0 && g.others[i].literals == w.literals; i-- {
		if slices.Equal(g.others[i].parts, w.parts) {
			return g.others[i]
		}
	}
	g.others = slices.Insert(g.others, at, w)
	return nil
}

// withLength adds n to lengths, which are sorted, the longest first.
func withLength(lengths []int, n int) []int {
	at, found := slices.BinarySearchFunc(lengths, n, func(a, b int) int { return cmp.Compare(b, a) })
	if found {
		return lengths
	}
	return slices.Insert(lengths, at, n)
}

// wildcardCursor is how far next has come.
type wildcardCursor struct{ prefix, suffix, other int }

// next returns the next pattern that text matches, or nil.
func (x *wildcards) next(c *wildcardCursor, text string) *wildcard {
	for c.prefix < len(x.lengths) {
		if n := x.lengths[c.prefix]; n <= len(text) {
			if g := x.byPrefix[text[:n]]; g != nil {
				if w := g.next(c, text, n); w != nil {
					return w
				}
			}
		}
		*c = wildcardCursor{prefix: c.prefix + 1}
	}
	return nil
}

// next is the same for one group, whose prefix has so many bytes. It takes
// whichever is more specific, the next with one star or the next with several.
func (g *wildcardGroup) next(c *wildcardCursor, text string, prefix int) *wildcard {
	var single *wildcard
	for ; c.suffix < len(g.lengths); c.suffix++ {
		if n := g.lengths[c.suffix]; prefix+n <= len(text) {
			if single = g.bySuffix[text[len(text)-n:]]; single != nil {
				break
			}
		}
	}
	for ; c.other < len(g.others); c.other++ {
		w := g.others[c.other]
		if single != nil && single.literals >= w.literals {
			break
		}
		if w.match(text) {
			c.other++
			return w
		}
	}
	if single != nil {
		c.suffix++
	}
	return single
}

// first returns the first pattern in file order that matches text, or nil.
func (x *wildcards) first(text string) *wildcard {
	var first *wildcard
	var c wildcardCursor
	for w := x.next(&c, text); w != nil; w = x.next(&c, text) {
		if first == nil || w.branch.order < first.branch.order {
			first = w
		}
	}
	return first
}

// anyText represents any text that a star may match. No rule file contains this
// character, so only a star matches it.
const anyText = "\x00"

// covering returns the first pattern in file order that matches everything that w
// matches; it may be w itself.
func (x *wildcards) covering(w *wildcard) *wildcard {
	return x.first(strings.Join(w.parts, anyText))
}
