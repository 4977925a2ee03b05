package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/request/reading"
)

// pathPattern is a path in which * matches one segment, or any characters inside one,
// and ** matches any number of segments, including none.
type pathPattern struct {
	source   string
	segments []segment
	slash    bool // it is written with a slash at its end
}

// segment is one step of a pathPattern.
type segment struct {
	kind segmentKind
	glob glob // of literal and partly
}

type segmentKind uint8

const (
	literalSegment segmentKind = iota
	partlySegment              // has a * among other characters
	anySegment                 // *
	deepSegment                // **
)

// maxPattern is the longest pattern in bytes.
const maxPattern = 4096

// ParsePath reads a path pattern.
func ParsePath(source string) (Pattern, error) {
	switch {
	case len(source) > maxPattern:
		return nil, fmt.Errorf("the path %s is longer than %d bytes", clip.Quote(source), maxPattern)
	case strings.HasPrefix(source, "*"):
		return nil, fmt.Errorf("the path %s must start with /, such as %q", clip.Quote(source), "/**/"+strings.TrimPrefix(source, "**/"))
	case !strings.HasPrefix(source, "/"):
		return nil, fmt.Errorf("the path %s must start with /", clip.Quote(source))
	case strings.Contains(source, "?"):
		return nil, fmt.Errorf("the path %s contains a query string; use \"query\" to match it", clip.Quote(source))
	}
	p := &pathPattern{source: source}
	rest := strings.TrimSuffix(source[1:], "/")
	if rest == "" {
		return p, nil
	}
	p.slash = strings.HasSuffix(source, "/")
	for text := range strings.SplitSeq(rest, "/") {
		s, err := parseSegment(text)
		if err != nil {
			return nil, fmt.Errorf("the path %s %w", clip.Quote(source), err)
		}
		if s.kind == deepSegment && len(p.segments) > 0 && p.segments[len(p.segments)-1].kind == deepSegment {
			continue // ** after ** adds nothing
		}
		p.segments = append(p.segments, s)
	}
	return p, nil
}

func parseSegment(text string) (segment, error) {
	switch {
	case text == "*":
		return segment{kind: anySegment}, nil
	case text == "**":
		return segment{kind: deepSegment}, nil
	case text == "":
		return segment{}, errors.New("has an empty segment and can never match: repeated slashes are merged")
	case text == "." || text == "..":
		return segment{}, fmt.Errorf("contains the segment %q; write the path it resolves to", text)
	case strings.Contains(text, "**"):
		return segment{}, fmt.Errorf("has ** inside the segment %s: write *, since ** must be a whole segment", clip.Quote(text))
	case text[0] == '{' && strings.HasSuffix(text, "}"):
		return segment{}, fmt.Errorf("contains the segment %s: write * to match any segment", clip.Quote(text))
	}
	g, err := parseGlob(text)
	if err != nil {
		return segment{}, fmt.Errorf("contains the segment %w", err)
	}
	if _, ok := g.literal(); ok {
		return segment{kind: literalSegment, glob: g}, nil
	}
	return segment{kind: partlySegment, glob: g}, nil
}

// literal returns the path, if p has no star.
func (p *pathPattern) literal() (string, bool) {
	var text strings.Builder
	for i := range p.segments {
		if p.segments[i].kind != literalSegment {
			return "", false
		}
		text.WriteString("/" + p.segments[i].glob.parts[0])
	}
	if len(p.segments) == 0 {
		return "/", true
	}
	return text.String(), true
}

// match reports whether p covers one reading of a path; see package reading.
//
// It walks segment by segment. On a mismatch after a ** it lets the last one
// take a segment more and tries again; earlier ones never have to, as they
// were satisfied with the least.
func (p *pathPattern) match(path string) bool {
	rest, i := path[1:], 0
	retry, retryRest := -1, ""
	for {
		if i < len(p.segments) && p.segments[i].kind == deepSegment {
			if i == len(p.segments)-1 {
				return true
			}
			retry, retryRest = i, rest
			i++
			continue
		}
		if rest == "" && i == len(p.segments) {
			return true
		}
		if rest != "" && i < len(p.segments) {
			step, after := nextSegment(rest)
			if p.segments[i].matches(step) {
				rest = after
				i++
				continue
			}
		}
		if retry < 0 || retryRest == "" {
			return false
		}
		_, retryRest = nextSegment(retryRest)
		rest, i = retryRest, retry+1
	}
}

func (s *segment) matches(text string) bool {
	switch s.kind {
	case literalSegment:
		return s.glob.parts[0] == text
	case partlySegment:
		return s.glob.match(text)
	case anySegment, deepSegment:
	}
	return true
}

// nextSegment splits a path, without its first slash, after a segment.
func nextSegment(rest string) (step, after string) {
	step, after, _ = strings.Cut(rest, "/")
	return step, after
}

// pathCondition asks for any of some paths, and none of others. It holds if any reading
// of a request's path is asked for, and excludes only if all of them are excluded, since
// servers differ in which reading they take.
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

// certain is applies for what is an advantage: every reading has to be asked for, and none may
// be excluded.
func (c *pathCondition) certain(f *facts) bool {
	if v := f.getPath(); !v.ok {
		return len(c.any.all) == 0
	}
	if f.paths.Beyond() {
		return false
	}
	for i, text := range f.paths.All() {
		if len(c.any.all) > 0 && !c.any.match(c.text(f.paths, i)) {
			return false
		}
		for e := range c.endings {
			if c.endings[e].match(text) {
				return false
			}
		}
	}
	return true
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

// excludes reports whether all readings are excluded, in the same case.
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

// covers reports whether a reading is one that was asked for: a request is counted under it.
func (c *pathCondition) covers(s *reading.Set, i int) bool {
	return len(c.any.all) == 0 || c.any.match(c.text(s, i))
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
