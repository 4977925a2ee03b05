package rules

import (
	"slices"

	"github.com/headgate/headgate/internal/request/reading"
)

// pathCondition asks for any of some paths, and none of others. Of the readings
// of a request's path any may be one asked for, but all have to be excluded:
// nobody knows which of them the server behind takes.
type pathCondition struct {
	textCondition      // the patterns of any are folded, unless exact
	exact         bool // case counts
	indexed       bool // the index gives the rule for paths asked for alone; see isProved

	// Of not, the patterns for paths with no slash at their end, with one, and
	// with more: servers may tell /health from /health/.
	endings [3]patternList
}

// applies decides about the path of a request, if it has one.
func (c *pathCondition) applies(f *facts) bool {
	v := f.getPath()
	if !v.ok {
		return len(c.any.all) == 0
	}
	return (len(c.any.all) == 0 || c.asksFor(f.paths)) && !c.excludes(f.paths)
}

// appliesIndexed is applies for a rule that the index has given.
func (c *pathCondition) appliesIndexed(f *facts) bool {
	if c.indexed {
		return !c.excludes(f.paths)
	}
	return c.applies(f)
}

// asksFor reports whether a reading is one asked for. A path with more readings
// than are looked at may be anything.
func (c *pathCondition) asksFor(s *reading.Set) bool {
	if s.Beyond() {
		return true
	}
	for i := range s.All() {
		if c.any.match(c.text(s, i)) {
			return true
		}
	}
	return false
}

// excludes reports whether all readings are excluded, in their very case.
func (c *pathCondition) excludes(s *reading.Set) bool {
	if len(c.not.all) == 0 || s.Beyond() {
		return false
	}
	not := &c.endings[min(s.Slashes(), len(c.endings)-1)]
	for _, text := range s.All() {
		if !not.match(text) {
			return false
		}
	}
	return true
}

// setEndings sorts the excluded patterns by the slashes that they cover.
func (c *pathCondition) setEndings() {
	var lists [len(c.endings)][]Pattern
	for _, made := range c.not.all {
		p, ok := made.(*pathPattern)
		n := 0
		if ok && p.slash {
			n = 1
		}
		if ok && len(p.segments) > 0 && p.segments[len(p.segments)-1].kind == deepSegment {
			for i := range lists {
				lists[i] = append(lists[i], made)
			}
			continue
		}
		lists[n] = append(lists[n], made)
	}
	for i := range lists {
		c.endings[i] = newPatternList(lists[i])
	}
}

// text returns a reading as the patterns asked for are written.
func (c *pathCondition) text(s *reading.Set, i int) string {
	if c.exact {
		return s.All()[i]
	}
	return s.Folded(i)
}

// counts reports whether a request is counted under one of its path's normal
// forms: it is that of a reading that was asked for.
func (c *pathCondition) counts(s *reading.Set, plain int) bool {
	if len(c.any.all) == 0 || s.Beyond() {
		return true
	}
	for i := range s.All() {
		if s.PlainOf(i) == plain && c.any.match(c.text(s, i)) {
			return true
		}
	}
	return false
}

// key returns what a path of that normal form is counted by.
func (c *pathCondition) key(s *reading.Set, plain int) string {
	if c.exact {
		return s.Plain()[plain]
	}
	return s.FoldedPlain(plain)
}

// mismatch says why c does not hold for the path of a request.
func (c *pathCondition) mismatch(f *facts) Mismatch {
	v := f.getPath()
	if !v.ok {
		return Mismatch{"path", c.any.describe(""), isAbsent}
	}
	v.text = f.paths.Plain()[0]
	if c.excludes(f.paths) {
		return Mismatch{"path", "anything but " + c.not.describe(f.paths.All()[0]), shown(v)}
	}
	return Mismatch{"path", c.any.describe(""), shown(v)}
}

// folded returns the list with case taken from its patterns.
func (l *patternList) folded() patternList {
	all := slices.Clone(l.all)
	for i := range all {
		if p, ok := all[i].(*pathPattern); ok {
			all[i] = p.folded()
		}
	}
	return newPatternList(all)
}

// folded returns p with its letters as those of folded readings.
func (p *pathPattern) folded() *pathPattern {
	out := &pathPattern{source: p.source, segments: slices.Clone(p.segments)}
	for i := range out.segments {
		g := &out.segments[i].glob
		g.parts = slices.Clone(g.parts)
		for j := range g.parts {
			g.parts[j] = reading.Fold(g.parts[j])
		}
	}
	return out
}
