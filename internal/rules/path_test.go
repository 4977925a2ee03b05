package rules

import (
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/request/reading"
)

// FuzzMatchPath compares the walk over a path with a plain recursion.
func FuzzMatchPath(f *testing.F) {
	f.Add("/a/**/b/*c*", "/a/x/b/ccc")
	f.Add("/**", "//a/../b/")
	f.Add("/**/a/**/b/*/c", "/a/b/b/c/b/d/c")
	f.Add("/A/*b/**", "/%41/..%2fa/XB/..;/c")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		made, err := ParsePath(pattern)
		if err != nil {
			return
		}
		p, ok := made.(*pathPattern)
		if !ok || len(p.segments) > 8 {
			return
		}
		x := &index{}
		n := x.pathNode(p.option().text)
		n.below = []int32{1}
		var s reading.Set
		s.Read(path)
		for i, text := range s.All() {
			if strings.Count(text, "/") > 12 {
				continue
			}
			var steps []string
			if text != "/" {
				steps = strings.Split(text[1:], "/")
			}
			got := p.match(text)
			if want := slowMatch(p.segments, steps); got != want {
				t.Errorf("%q matches %q: %v, want %v", pattern, text, got, want)
			}
			if folded := s.Folded(i); got && !p.folded().match(folded) {
				t.Errorf("%q matches %q, but not %q", pattern, text, folded)
			} else if got && len(x.paths.collect(folded[1:], nil)) == 0 {
				t.Errorf("%q matches %q but the index does not find it", pattern, text)
			} else if got {
				isFoundByParts(t, p, folded, "/")
			}
		}
	})
}

// FuzzGlobParts looks for a text that a pattern matches and that lacks a part of it.
func FuzzGlobParts(f *testing.F) {
	f.Add("plan-*-gold", "plan--gold")
	f.Add(`*b\*t*`, "a b*t c")
	f.Add("*", "")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if g, err := parseGlob(pattern); err == nil && g.match(text) {
			isFoundByParts(t, &g, text, "")
		}
	})
}

// isFoundByParts fails unless a search of text and end finds p by each of its parts.
func isFoundByParts(t *testing.T, p Pattern, text, end string) {
	t.Helper()
	for _, piece := range p.pieces() {
		for part := range partsOf(piece) {
			// So many rules that the text is searched.
			x := parts{all: make([]int32, len(text)+len(end))}
			x.insert(part, 7)
			if out := x.collect(text, end, nil); !slices.Contains(out, 7) {
				t.Errorf("%q matches %q, and %x is not found in it", p, text, part)
			}
		}
	}
}

func slowMatch(segments []segment, steps []string) bool {
	if len(segments) == 0 {
		return len(steps) == 0
	}
	if segments[0].kind == deepSegment {
		for i := range len(steps) + 1 {
			if slowMatch(segments[1:], steps[i:]) {
				return true
			}
		}
		return false
	}
	return len(steps) > 0 && segments[0].matches(steps[0]) && slowMatch(segments[1:], steps[1:])
}
