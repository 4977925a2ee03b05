package httpapi

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/request/client"
)

// The body of a check is parsed by hand: its shape is small and fixed, it is on the
// hot path, and mistakes deserve specific messages. The parser accepts a subset of
// what encoding/json accepts (a fuzz test compares them): no unknown or repeated
// names, no null, no lone surrogates, only valid UTF-8.

// syntaxError says that a body is not JSON, or not JSON of this shape.
type syntaxError struct {
	offset  int
	message string
	cause   error // if it has one
}

func (e *syntaxError) Error() string {
	return fmt.Sprintf("%s (at byte %d)", e.message, e.offset+1)
}

func (e *syntaxError) Unwrap() error { return e.cause }

// parser reads one JSON text. The strings it returns point into text if possible.
type parser struct {
	text    string
	pos     int
	clients *client.Resolver
	asks    *asks // reads limits in checks; nil where there are none
}

func (p *parser) fail(format string, args ...any) error {
	return &syntaxError{offset: p.pos, message: fmt.Sprintf(format, args...)}
}

// space skips white space.
func (p *parser) space() {
	for p.pos < len(p.text) {
		switch p.text[p.pos] {
		case ' ', '\t', '\r', '\n':
			p.pos++
		default:
			return
		}
	}
}

// next skips white space and returns the byte there, or 0 at the end.
func (p *parser) next() byte {
	p.space()
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

// found describes what is at the current position, for messages.
func (p *parser) found() string {
	switch c := p.next(); {
	case p.pos >= len(p.text):
		return "the end of the body"
	case c == '"':
		return "a string"
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	case c == '-' || c >= '0' && c <= '9':
		return "a number"
	case strings.HasPrefix(p.text[p.pos:], "true"), strings.HasPrefix(p.text[p.pos:], "false"):
		return "a boolean"
	case strings.HasPrefix(p.text[p.pos:], "null"):
		return "null"
	default:
		r, _ := utf8.DecodeRuneInString(p.text[p.pos:])
		return strconv.QuoteRune(r)
	}
}

// take skips c, which must come next.
func (p *parser) take(c byte, what string) error {
	if p.next() != c || p.pos >= len(p.text) {
		return p.fail("expected %s, found %s", what, p.found())
	}
	p.pos++
	return nil
}

// object reads an object and calls member for each name, which must read the value.
func (p *parser) object(what string, member func(name string) error) error {
	if p.next() != '{' {
		return p.fail("%s must be a JSON object, found %s", what, p.found())
	}
	p.pos++
	if p.next() == '}' {
		p.pos++
		return nil
	}
	for {
		if p.next() != '"' {
			return p.fail("expected a name in quotes, found %s", p.found())
		}
		name, err := p.string("name")
		if err != nil {
			return err
		}
		if err := p.take(':', "a colon"); err != nil {
			return err
		}
		if err := member(name); err != nil {
			return err
		}
		if p.next() == '}' {
			p.pos++
			return nil
		}
		if err := p.take(',', "a comma or }"); err != nil {
			return err
		}
	}
}

// array reads an array and calls element to read each element.
func (p *parser) array(what string, element func(i int) error) error {
	if p.next() != '[' {
		return p.fail("%s must be a JSON array, found %s", what, p.found())
	}
	p.pos++
	if p.next() == ']' {
		p.pos++
		return nil
	}
	for i := 0; ; i++ {
		if err := element(i); err != nil {
			return err
		}
		if p.next() == ']' {
			p.pos++
			return nil
		}
		if err := p.take(',', "a comma or ]"); err != nil {
			return err
		}
	}
}

// string reads a string.
func (p *parser) string(what string) (string, error) {
	if p.next() != '"' {
		return "", p.fail("%s must be a string, found %s", what, p.found())
	}
	start := p.pos + 1
	for i := start; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == '"':
			s := p.text[start:i]
			if !utf8.ValidString(s) {
				return "", p.fail("%s is not valid UTF-8", what)
			}
			p.pos = i + 1
			return s, nil
		case c == '\\':
			return p.escaped(what, start, i)
		case c < 0x20:
			p.pos = i
			return "", p.fail("%s has an unescaped control character", what)
		}
	}
	p.pos = len(p.text)
	return "", p.fail("%s has no closing quote", what)
}

// escaped reads the rest of a string that starts at start and has its first backslash
// at i.
func (p *parser) escaped(what string, start, i int) (string, error) {
	var b strings.Builder
	b.WriteString(p.text[start:i])
	for i < len(p.text) {
		switch c := p.text[i]; {
		case c == '"':
			if !utf8.ValidString(b.String()) {
				return "", p.fail("%s is not valid UTF-8", what)
			}
			p.pos = i + 1
			return b.String(), nil
		case c < 0x20:
			p.pos = i
			return "", p.fail("%s has an unescaped control character", what)
		case c != '\\':
			b.WriteByte(c)
			i++
		default:
			r, size := unescape(p.text[i:])
			if size == 0 {
				p.pos = i
				return "", p.fail("%s has an invalid escape", what)
			}
			b.WriteRune(r)
			i += size
		}
	}
	p.pos = len(p.text)
	return "", p.fail("%s has no closing quote", what)
}

// unescape reads the escape at the start of s. The size is 0 if it is invalid.
func unescape(s string) (r rune, size int) {
	if len(s) < 2 {
		return 0, 0
	}
	switch s[1] {
	case '"', '\\', '/':
		return rune(s[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r = hex4(s)
		if r < 0 {
			return 0, 0
		}
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		r = utf16.DecodeRune(r, hex4(s[6:]))
		if r == utf8.RuneError {
			return 0, 0 // a lone surrogate
		}
		return r, 12
	}
	return 0, 0
}

// hex4 reads \uXXXX at the start of s; -1 if there is none.
func hex4(s string) rune {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(s[2:6], 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}

// whole reads a whole number from 0 to described.MaxCost.
func (p *parser) whole(name string) (int64, error) {
	c := p.next()
	if c != '-' && (c < '0' || c > '9') {
		return 0, p.fail(`%q must be a number, found %s`, name, p.found())
	}
	start := p.pos
	end := start
	for end < len(p.text) && strings.IndexByte("0123456789+-.eE", p.text[end]) >= 0 {
		end++
	}
	text := p.text[start:end]
	switch {
	case c == '-':
		return 0, p.fail(`%q must not be negative`, name)
	case strings.ContainsAny(text, "+-.eE"):
		return 0, p.fail(`%q must be a whole number`, name)
	case len(text) > 1 && c == '0':
		return 0, p.fail(`%q must not start with 0`, name)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n > described.MaxCost {
		return 0, p.fail(`%q must be at most %d`, name, int64(described.MaxCost))
	}
	p.pos = end
	return n, nil
}

// boolean reads true or false.
func (p *parser) boolean(what string) (bool, error) {
	p.space()
	for _, b := range [...]bool{true, false} {
		if word := strconv.FormatBool(b); strings.HasPrefix(p.text[p.pos:], word) {
			p.pos += len(word)
			return b, nil
		}
	}
	return false, p.fail("%s must be true or false, found %s", what, p.found())
}

// end checks that nothing follows.
func (p *parser) end() error {
	if p.next(); p.pos < len(p.text) {
		return p.fail("expected the end of the body, found %s", p.found())
	}
	return nil
}
