// Package spelling has the one form of what clients can write in many: the
// value of a cookie, credentials, the name of a parameter. What is counted by
// it has to be the same for every spelling that some server takes for the same,
// or else each of them is a budget of its own. docs/keys.md lists what is done.
package spelling

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Cookie returns the value of a cookie without spaces around it, without the
// quotes around that, and percent-decoded, as Express and PHP read it. An escape
// that is none stays as it is. A value that begins with j:, which is JSON to
// Express, is the text that it stands for, or its JSON in one form. The signature of
// a signed value is in one form as well. It allocates nothing if text is so already.
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

// unquoted returns text without its quotes. Where the first byte is one, old
// versions of Express take off the last as well, whatever that is.
func unquoted(text string) string {
	if n := len(text); n > 1 && text[0] == '"' {
		return text[1 : n-1]
	}
	return text
}

// ofJSON returns what a value is that begins with j:, rest being what follows: the
// text that JavaScript makes of it, and of objects their JSON in one form.
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

// scriptText returns the text that JavaScript makes of a value where it needs one,
// as for the name of a property: of a list, its elements' with commas between
// them. It is false for objects, and lists that have some.
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

// Unescape decodes what is percent-encoded in text, and with plus every + as a
// space, as forms have it. What is no escape stays as it is, so that no text is
// refused that some server would read.
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

// IsEscaped reports whether every % in text begins an escape.
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

// IsNeedless reports whether raw stands for text in a way for which nobody has a reason:
// with escapes of letters and digits, or otherwise though text has nothing else. Not
// all servers know all ways, so that to some raw is what it is.
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

// isUnreserved reports whether no encoder escapes c, nor puts a text of it in quotes.
func isUnreserved(c byte) bool { return isNameByte(c) || c == '-' || c == '.' || c == '_' }

// Plus says whether a + is a space.
type Plus bool

// The two readings of a +.
const (
	PlusIsPlus  Plus = false
	PlusIsSpace Plus = true
)

// Quoted reports whether an odd number of backslashes stands before s[i].
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

// Field returns the value of a header field that is not of credentials: without what
// some server takes for spaces around it, those of Unicode or, if text is none, those
// of Latin-1; of a JWT with its signature in one form.
func Field(text string) string {
	text = Trim(text)
	if beginsJWT(text) {
		return signed(text, decoder{})
	}
	return text
}

// ClarityOfField says how far servers agree on the value of such a field: in what is
// base64 of a JWT there is nothing else, and not all trim the same spaces.
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
// clear, besides what [Field] says.
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

// Trim returns text without spaces around it and all else that shows nothing, as
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

// isBlank reports whether a character shows nothing, or is a control character: what
// Laravel and PHP trim, and more.
func isBlank(c rune) bool {
	return unicode.IsSpace(c) || c == '\u2800' || c == '\U0001d159' || unicode.In(c, unicode.Cc, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point)
}

// isGraphic reports whether c is of ASCII, and no space or control character.
func isGraphic(c byte) bool { return c > ' ' && c < 0x7f }
