package ownform

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// anotherLanguage returns an error for a path that no request would ever match, since
// it is a regular expression, a framework's route or several paths in one text.
// Characters escaped with a backslash are fine.
func anotherLanguage(source string) error {
	const own = "paths are not regular expressions: * matches one segment, ** any number of segments"
	if c, ok := escapedLetter(source); ok {
		return fmt.Errorf("the path %s contains %s; %s", clip.Quote(source), clip.Quote(`\`+string(c)), own)
	}
	bare := withoutEscaped(source)
	if several := severalPaths(bare); several != nil && !strings.Contains(source, `\`) {
		return fmt.Errorf("%s is read as one path: write a list, %s", clip.Quote(source), quotedList(several))
	}
	if strings.ContainsRune(bare, '|') {
		return fmt.Errorf(`the path %s contains |: write a list, such as ["/login", "/register"], or \| to match the character`, clip.Quote(source))
	}
	for step := range strings.SplitSeq(strings.Trim(bare, "/"), "/") {
		switch {
		case enclosed(step, "<", ">"), enclosed(step, "[", "]"):
			return fmt.Errorf(`the path %s contains the segment %s: write * to match any segment, or \ before a character to match it literally`, clip.Quote(source), clip.Quote(step))
		case within(step, '{', '}') && strings.Contains(step, ","):
			return fmt.Errorf("the path %s contains alternatives in %s: write a list of paths", clip.Quote(source), clip.Quote(step))
		case within(step, '{', '}'):
			return fmt.Errorf(`the path %s contains %s: write * to match any characters of a segment, or \{ to match the character`, clip.Quote(source), clip.Quote(step))
		case step == ".+", step == "(.*)", step == "(.+)", within(step, '[', ']') && strings.ContainsAny(step, "+*-^"):
			return fmt.Errorf("the path %s contains %s; %s", clip.Quote(source), clip.Quote(step), own)
		}
	}
	if strings.HasSuffix(bare, "$") && !strings.HasSuffix(bare, "/$") {
		return fmt.Errorf(`the path %s ends in $: leave it out, since a pattern matches the whole path, or write \$ to match the character`, clip.Quote(source))
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

// quotedList returns texts as a YAML list.
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

// escapedLetter returns the first letter or digit after a backslash, which needs no
// escape.
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

// within reports whether text contains open and, after it, end.
func within(text string, open, end byte) bool {
	at := strings.IndexByte(text, open)
	return at >= 0 && strings.IndexByte(text[at:], end) > 0
}

// warnOfPath warns about notations of other routers that are matched literally here, and
// may be meant so.
func (p *Parser) warnOfPath(source string, at *yamltext.Node) {
	for step := range strings.SplitSeq(source, "/") {
		switch {
		case len(step) > 1 && step[0] == ':':
			p.Warnf(at, "", "the segment %s is matched literally; write * to match any segment", clip.Quote(step))
		case step == ".*":
			p.Warnf(at, `write \.* if that is what you mean`, "the segment \".*\" matches names that start with a dot; * matches one segment, ** any number of segments")
		}
	}
	if within(withoutEscaped(source), '[', ']') {
		p.Warnf(at, `write \[ if that is what you mean, or * to match any characters of a segment`, "the [ in the path %s is matched literally", clip.Quote(source))
	}
	if strings.ContainsRune(withoutEscaped(source), '#') {
		p.Warnf(at, "", "the path %s contains #: clients do not send what follows it", clip.Quote(source))
	}
	for i := 0; i+2 < len(source); i++ {
		if source[i] == '%' && isHexDigit(source[i+1]) && isHexDigit(source[i+2]) {
			p.Warnf(at, "", "the path %s never matches as written, since request paths are decoded first: write the character instead of %s", clip.Quote(source), source[i:i+3])
			return
		}
	}
}

func isHexDigit(c byte) bool { return strings.IndexByte("0123456789abcdefABCDEF", c) >= 0 }

// warnOfValue warns about a value that looks like a regular expression or a list, since
// it is matched literally.
func (p *Parser) warnOfValue(source, name string, at *yamltext.Node) {
	bare := withoutEscaped(source)
	switch {
	case strings.HasPrefix(bare, "^"), strings.HasSuffix(bare, "$") && len(bare) > 1, strings.HasPrefix(bare, ".*"), strings.HasPrefix(bare, ".+"),
		strings.HasPrefix(bare, "(?"), strings.HasPrefix(bare, "/^"), strings.HasSuffix(bare, "$/"), enclosed(bare, "[", "]"):
		p.Warnf(at, "", "the value %s of %s is not a regular expression: only * is special, and matches any characters", clip.Quote(source), clip.Quote(name))
	case isWordList(bare):
		p.Warnf(at, `write a list of values, or \, if that is what you mean`, "the value %s of %s is matched literally, including its comma", clip.Quote(source), clip.Quote(name))
	case strings.Contains(bare, "|"):
		p.Warnf(at, `write a list of values, or \| if that is what you mean`, "the value %s of %s is matched literally, including its |", clip.Quote(source), clip.Quote(name))
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
