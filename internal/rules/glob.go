package rules

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
)

// glob is a pattern in which * matches any characters, including none. A backslash
// escapes the character after it.
type glob struct {
	source string
	parts  []string // the literal pieces between the stars: one if there is none
}

// ParseGlob parses a pattern in which * matches any characters.
func ParseGlob(source string) (Pattern, error) {
	g, err := parseGlob(source)
	if err != nil {
		return nil, err
	}
	return &g, nil
}

// Literal returns a pattern that matches exactly text.
func Literal(text string) Pattern { return &glob{source: text, parts: []string{text}} }

// TextOf returns the only text that p matches, if there is only one.
func TextOf(p Pattern) (string, bool) { return p.literal() }

func parseGlob(source string) (glob, error) {
	g := glob{source: source}
	var part strings.Builder
	for i := 0; i < len(source); i++ {
		c := source[i]
		switch c {
		case '\\':
			i++
			if i == len(source) {
				return glob{}, fmt.Errorf("%s ends in a backslash with nothing to escape", clip.Quote(source))
			}
			part.WriteByte(source[i])
		case '*':
			g.parts = append(g.parts, part.String())
			part.Reset()
		default:
			part.WriteByte(c)
		}
	}
	g.parts = append(g.parts, part.String())
	return g, nil
}

// literal returns the only text that g matches, if it has no star.
func (g *glob) literal() (string, bool) {
	return g.parts[0], len(g.parts) == 1
}

// pieces returns the literal pieces.
func (g *glob) pieces() []string {
	var out []string
	for _, part := range g.parts {
		if part != "" {
			out = append(out, part)
		}
	}
	return out
}

// match reports whether text is as g says. Each star takes as little as it
// can, which is enough where only the last part is tied to the end, so that
// the time is that of one search for each part.
func (g *glob) match(text string) bool {
	first, last := g.parts[0], g.parts[len(g.parts)-1]
	if len(g.parts) == 1 {
		return text == first
	}
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range g.parts[1 : len(g.parts)-1] {
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return true
}
