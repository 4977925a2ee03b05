package ownform

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// anotherLanguage returns what a path has of another language, so that no
// request would ever match: regular expressions, the routes of frameworks,
// several paths in one text. A backslash before a character makes it stand for
// itself, and is then no such thing.
func anotherLanguage(source string) error {
	const own = "paths are no regular expressions, and * stands for any one segment, ** for any number"
	if c, ok := escapedLetter(source); ok {
		return fmt.Errorf("the path %s has %s: %s", clip.Quote(source), clip.Quote(`\`+string(c)), own)
	}
	bare := withoutEscaped(source)
	if several := severalPaths(bare); several != nil && !strings.Contains(source, `\`) {
		return fmt.Errorf("the path %s is taken as one: write a list, %s", clip.Quote(source), quotedList(several))
	}
	if strings.ContainsRune(bare, '|') {
		return fmt.Errorf(`the path %s has a |: list the paths one by one, such as ["/login", "/register"], or write \| for the character`, clip.Quote(source))
	}
	for step := range strings.SplitSeq(strings.Trim(bare, "/"), "/") {
		switch {
		case enclosed(step, "<", ">"), enclosed(step, "[", "]"):
			return fmt.Errorf(`the path %s has the segment %s: write * for any one segment, or \ before a character that stands for itself`, clip.Quote(source), clip.Quote(step))
		case within(step, '{', '}') && strings.Contains(step, ","):
			return fmt.Errorf("the path %s has alternatives in %s: list the paths one by one", clip.Quote(source), clip.Quote(step))
		case within(step, '{', '}'):
			return fmt.Errorf(`the path %s has %s: write * for any characters of a segment, or \{ for the character`, clip.Quote(source), clip.Quote(step))
		case step == ".+", step == "(.*)", step == "(.+)", within(step, '[', ']') && strings.ContainsAny(step, "+*-^"):
			return fmt.Errorf("the path %s has %s: %s", clip.Quote(source), clip.Quote(step), own)
		}
	}
	if strings.HasSuffix(bare, "$") && !strings.HasSuffix(bare, "/$") {
		return fmt.Errorf(`the path %s ends in $: leave it out, as a path matches as a whole, or write \$ for the character`, clip.Quote(source))
	}
	return nil
}

// severalPaths returns the paths that a text lists, if it is more than one.
func severalPaths(text string) []string {
	var out []string
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ' ' || r == ';' || r == '|' }) {
		if !strings.HasPrefix(strings.TrimPrefix(part, "!"), "/") {
			return nil
		}
		out = append(out, part)
	}
	if len(out) < 2 {
		return nil
	}
	return out
}

// quotedList writes texts as a list in YAML.
func quotedList(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = clip.Quote(text)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// withoutEscaped returns a pattern with a letter in place of each escaped
// character.
func withoutEscaped(source string) string {
	var out strings.Builder
	for i := 0; i < len(source); i++ {
		if source[i] == '\\' && i+1 < len(source) {
			i++
			_ = out.WriteByte('x')
			continue
		}
		_ = out.WriteByte(source[i])
	}
	return out.String()
}

// escapedLetter returns the first letter or digit behind a backslash, which
// would stand for itself without.
func escapedLetter(source string) (byte, bool) {
	for i := 0; i+1 < len(source); i++ {
		if source[i] != '\\' {
			continue
		}
		i++
		if c := source[i]; c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c, true
		}
	}
	return 0, false
}

func enclosed(text, open, end string) bool {
	return len(text) > 2 && strings.HasPrefix(text, open) && strings.HasSuffix(text, end)
}

// within reports whether text has open, and behind it end.
func within(text string, open, end byte) bool {
	at := strings.IndexByte(text, open)
	return at >= 0 && strings.IndexByte(text[at:], end) > 0
}

// warnOfPath warns of what other routers understand and this one takes
// literally, where somebody may mean just that.
func (p *Parser) warnOfPath(source string, at *yamltext.Node) {
	for step := range strings.SplitSeq(source, "/") {
		switch {
		case len(step) > 1 && step[0] == ':':
			p.Warnf(at, "", "the segment %s is taken literally; * stands for any one segment", clip.Quote(step))
		case step == ".*":
			p.Warnf(at, `write \.* if that is meant`, "the segment \".*\" stands for names that begin with a dot; * stands for any one segment, ** for any number")
		}
	}
	if within(withoutEscaped(source), '[', ']') {
		p.Warnf(at, `write \[ if that is meant, or * for any characters of a segment`, "the path %s is taken literally, with its [", clip.Quote(source))
	}
	if strings.ContainsRune(withoutEscaped(source), '#') {
		p.Warnf(at, "", "the path %s has a #: no client sends what follows it", clip.Quote(source))
	}
	for i := 0; i+2 < len(source); i++ {
		if source[i] == '%' && isHexDigit(source[i+1]) && isHexDigit(source[i+2]) {
			p.Warnf(at, "", "the path %s is taken literally, and requests' paths are decoded: write the character instead of %s", clip.Quote(source), source[i:i+3])
			return
		}
	}
}

func isHexDigit(c byte) bool { return strings.IndexByte("0123456789abcdefABCDEF", c) >= 0 }

// warnOfValue warns of a value that reads as a regular expression or a list: it
// is compared with what the request has, character by character.
func (p *Parser) warnOfValue(source, name string, at *yamltext.Node) {
	bare := withoutEscaped(source)
	switch {
	case strings.HasPrefix(bare, "^"), strings.HasSuffix(bare, "$") && len(bare) > 1, strings.HasPrefix(bare, ".*"), strings.HasPrefix(bare, ".+"),
		strings.HasPrefix(bare, "(?"), strings.HasPrefix(bare, "/^"), strings.HasSuffix(bare, "$/"), enclosed(bare, "[", "]"):
		p.Warnf(at, "", "the value %s of %s is no regular expression: only * has a meaning, any characters", clip.Quote(source), clip.Quote(name))
	case isWordList(bare):
		p.Warnf(at, `list the values one by one, or write \, if that is meant`, "the value %s of %s is compared as it is, with its comma", clip.Quote(source), clip.Quote(name))
	case strings.Contains(bare, "|"):
		p.Warnf(at, `list the values one by one, or write \| if that is meant`, "the value %s of %s is compared as it is, with its |", clip.Quote(source), clip.Quote(name))
	}
}

// isWordList reports whether a text is several words with nothing but commas between.
func isWordList(text string) bool {
	words := strings.Split(text, ",")
	for _, word := range words {
		if word == "" || strings.ContainsFunc(word, func(c rune) bool {
			return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '_'
		}) {
			return false
		}
	}
	return len(words) > 1
}
