// Package spelling brings texts that clients can write in many ways into one form: values
// of cookies, credentials, names of parameters. Spellings that some server takes for the
// same must be counted as the same, or each would have its own budget. docs/keys.md lists
// the rules.
package spelling

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Cookie returns the value of a cookie without spaces and quotes around it, and
// percent-decoded, as Express and PHP read it. Invalid escapes stay. A value that starts
// with j:, which Express reads as JSON, becomes the text that it encodes, or its JSON in
// one form. The signature of a signed value is also brought into one form. It does not
// allocate if text has this form.
func Cookie(text string) string {
	text = unquoted(strings.Trim(text, " \t"))
	if strings.IndexByte(text, '%') >= 0 {
		text = Unescape(text, PlusIsPlus)
	}
	if rest, ok := strings.CutPrefix(text, "j:"); ok && len(text) <= maxJSON {
		return ofJSON(text, rest)
	}
	return signed(text, decoder{})
}

// unquoted returns text without its quotes. If the first byte is a quote, old versions of
// Express also remove the last byte, whatever it is.
func unquoted(text string) string {
	if n := len(text); n > 1 && text[0] == '"' {
		return text[1 : n-1]
	}
	return text
}

// ofJSON returns the meaning of a value that starts with j:, followed by rest: the text
// that JavaScript makes of it, or the JSON of objects in one form.
func ofJSON(text, rest string) string {
	var v any
	if json.Unmarshal([]byte(rest), &v) != nil {
		return text
	}
	if one, ok := scriptText(v); ok {
		return one
	}
	one, err := json.Marshal(v)
	if err != nil {
		return text
	}
	return "j:" + string(one)
}

// scriptText returns the text that JavaScript converts a value to: for a list, its
// elements joined with commas. It returns false for objects, and lists that contain any.
func scriptText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []any:
		texts := make([]string, len(v))
		for i, element := range v {
			if element == nil {
				continue
			}
			var ok bool
			if texts[i], ok = scriptText(element); !ok {
				return "", false
			}
		}
		return strings.Join(texts, ","), true
	case map[string]any:
		return "", false
	}
	text, err := json.Marshal(v)
	return string(text), err == nil
}

// Unescape percent-decodes text, and with PlusIsSpace reads + as a space, as in forms.
// Invalid escapes stay, so no text is refused that some server would read.
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

// IsNeedless reports whether raw is a spelling of text that no encoder writes: it escapes
// letters or digits, or text needs no escapes or quotes at all. Some servers do not
// decode it.
func IsNeedless(raw, text string) bool {
	if raw == text {
		return false
	}
	for i := 0; i+2 < len(raw); i++ {
		if raw[i] == '%' && IsHex(raw[i+1]) && IsHex(raw[i+2]) && isUnreserved(Hex(raw[i+1])<<4|Hex(raw[i+2])) {
			return true
		}
	}
	for i := range len(text) {
		if !isUnreserved(text[i]) {
			return false
		}
	}
	return text != ""
}

// isUnreserved reports whether no encoder escapes or quotes c.
func isUnreserved(c byte) bool { return isNameByte(c) || c == '-' || c == '.' || c == '_' }

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

// Field returns the value of a header field without credentials: without spaces around
// it, which are those of Unicode or, if it is not UTF-8, of Latin-1. The signature of a
// JWT is brought into one form.
func Field(text string) string {
	text = Trim(text)
	if beginsJWT(text) {
		return signed(text, decoder{})
	}
	return text
}

// ClarityOfField returns how far servers agree on the value of such a field. They
// disagree about other bytes in the base64 of a JWT, and about which spaces to trim.
func ClarityOfField(text string) Clarity {
	one := Trim(text)
	switch {
	case beginsJWT(one) && !isClearSigned(one):
		return Unclear
	case one != strings.Trim(text, " \t"):
		return Several
	}
	return Clear
}

// AppendFields appends to dst what servers read in the value of a field that is not
// clear, apart from what [Field] returns.
func AppendFields(dst []string, text string) []string {
	one := Trim(text)
	if text = strings.Trim(text, " \t"); one != text {
		dst = append(dst, text)
	}
	if beginsJWT(one) && !isClearSigned(one) {
		for _, p := range [...]padding{endsInPlace, endsNever} {
			dst = append(dst, signed(one, decoder{padding: p}))
		}
	}
	return dst
}

func beginsJWT(text string) bool { return strings.HasPrefix(text, objectBegins) && isJWT(text) }

// Trim returns text without leading and trailing spaces and invisible characters, as
// Laravel reads parameters.
func Trim(text string) string {
	if text == "" || isGraphic(text[0]) && isGraphic(text[len(text)-1]) {
		return text
	}
	if utf8.ValidString(text) {
		return strings.TrimFunc(text, isBlank)
	}
	return trimLatin(text)
}

// isBlank reports whether a character is invisible or a control character. It covers what
// Laravel and PHP trim.
func isBlank(c rune) bool {
	return unicode.IsSpace(c) || c == '\u2800' || c == '\U0001d159' || unicode.In(c, unicode.Cc, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point)
}

// isGraphic reports whether c is visible ASCII.
func isGraphic(c byte) bool { return c > ' ' && c < 0x7f }
