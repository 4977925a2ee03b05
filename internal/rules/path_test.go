package rules

import (
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
		n := x.pathNode(p.posting().text)
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
			}
		}
	})
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
