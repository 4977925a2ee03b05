// Package spelling reads texts that clients can write in several ways: values of cookies
// and parameters, credentials, names of parameters. Each has one strict reading. What it
// cannot read is unclear, and is counted by the client's address; docs/rules/rules.md has the
// promise, and docs/decisions/0135 the reasons.
package spelling

import (
	"encoding/base64"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Unescape percent-decodes text once, and with PlusIsSpace reads + as a space, as in
// forms. Invalid escapes stay.
func Unescape(text string, plus Plus) string {
	if strings.IndexByte(text, '%') < 0 && (!bool(plus) || strings.IndexByte(text, '+') < 0) {
		return text
	}
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '+' && bool(plus):
			b = append(b, ' ')
		case c == '%' && i+2 < len(text) && IsHex(text[i+1]) && IsHex(text[i+2]):
			b = append(b, Hex(text[i+1])<<4|Hex(text[i+2]))
			i += 2
		default:
			b = append(b, c)
		}
	}
	return string(b)
}

// IsEscaped reports whether every % in text starts a valid escape.
func IsEscaped(text string) bool {
	for {
		at := strings.IndexByte(text, '%')
		switch {
		case at < 0:
			return true
		case at+2 >= len(text) || !IsHex(text[at+1]) || !IsHex(text[at+2]):
			return false
		}
		text = text[at+3:]
	}
}

// Plus is whether a + is a space.
type Plus bool

// The two readings of a +.
const (
	PlusIsPlus  Plus = false
	PlusIsSpace Plus = true
)

// Quoted reports whether an odd number of backslashes precedes s[i].
func Quoted(s string, i int) bool {
	n := 0
	for i-n > 0 && s[i-n-1] == '\\' {
		n++
	}
	return n%2 == 1
}

// IsHex reports whether c is a hexadecimal digit.
func IsHex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

// Hex returns the value of a hexadecimal digit.
func Hex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// isTrimmed reports whether text neither begins nor ends with a space or an invisible
// character, which some servers trim.
func isTrimmed(text string) bool {
	if text == "" || isGraphic(text[0]) && isGraphic(text[len(text)-1]) {
		return true
	}
	first, _ := utf8.DecodeRuneInString(text)
	last, _ := utf8.DecodeLastRuneInString(text)
	return !isBlank(first) && !isBlank(last)
}

// isBlank reports whether a character is invisible, a control character, or not UTF-8.
func isBlank(c rune) bool {
	return c == utf8.RuneError || unicode.IsSpace(c) || c == '\u2800' || c == '\U0001d159' ||
		unicode.In(c, unicode.Cc, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point)
}

// isGraphic reports whether c is visible ASCII.
func isGraphic(c byte) bool { return c > ' ' && c < 0x7f }

// isASCII reports whether text has no control character and nothing beyond ASCII.
func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] >= 0x7f {
			return false
		}
	}
	return true
}

const objectBegins = "eyJ" // the start of a JSON object in base64

// isStrict reports whether the base64 in a text that is, or looks like, a signed JSON
// object can be written in no other way: the signature of a JWT or a session of Flask, all
// parts of an encrypted JWT, all of a session of Laravel. Lenient decoders would accept
// many spellings of it.
func isStrict(text string) bool {
	if !strings.HasPrefix(strings.TrimPrefix(text, "."), objectBegins) && !strings.HasPrefix(text, ".eJ") {
		return true
	}
	strict := func(e *base64.Encoding, part string) bool {
		var room [512]byte
		_, err := e.Strict().AppendDecode(room[:0], []byte(part))
		return err == nil && !strings.ContainsAny(part, "\r\n")
	}
	switch strings.Count(text, ".") {
	case 0:
		return strict(base64.StdEncoding, text) || strict(base64.RawURLEncoding, text)
	case 4:
		for part := range strings.SplitSeq(text, ".") {
			if !strict(base64.RawURLEncoding, part) {
				return false
			}
		}
		return true
	}
	return strict(base64.RawURLEncoding, text[strings.LastIndexByte(text, '.')+1:])
}
