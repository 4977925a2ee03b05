package rules

import (
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
)

// pathPattern is a path in which * stands for one segment, or inside a segment
// for any characters of it, and ** for any number of segments, also none.
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
		return nil, fmt.Errorf("the path %s must begin with /, such as %q", clip.Quote(source), "/**/"+strings.TrimPrefix(source, "**/"))
	case !strings.HasPrefix(source, "/"):
		return nil, fmt.Errorf("the path %s must begin with /", clip.Quote(source))
	case strings.Contains(source, "?"):
		return nil, fmt.Errorf("the path %s has a query; match it with query", clip.Quote(source))
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
		return segment{}, errors.New("has an empty segment and could never match: doubled slashes are taken as one")
	case text == "." || text == "..":
		return segment{}, fmt.Errorf("has the segment %q; write the path that it leads to", text)
	case strings.Contains(text, "**"):
		return segment{}, fmt.Errorf("has ** inside the segment %s: ** must stand alone, a single * is enough here", clip.Quote(text))
	case text[0] == '{' && strings.HasSuffix(text, "}"):
		return segment{}, fmt.Errorf("has the segment %s: write * for any one segment", clip.Quote(text))
	}
	g, err := parseGlob(text)
	if err != nil {
		return segment{}, fmt.Errorf("has the segment %w", err)
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
