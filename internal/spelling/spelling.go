// Package spelling has the one form of what clients can write in many: the
// value of a cookie, credentials, the name of a parameter. What is counted by
// it has to be the same for every spelling that some server takes for the same,
// or else each of them is a budget of its own. docs/keys.md lists what is done.
package spelling

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// Cookie returns the value of a cookie without spaces around it, without the
// quotes around that, and percent-decoded, as Express and PHP read it. An escape
// that is none stays as it is. A value that begins with j:, which is JSON to
// Express, is the text that it stands for, or its JSON in one form. It
// allocates nothing if text is so already.
func Cookie(text string) string {
	text = unquoted(strings.Trim(text, " \t"))
	if strings.IndexByte(text, '%') >= 0 {
		text = Unescape(text, PlusIsPlus)
	}
	if rest, ok := strings.CutPrefix(text, "j:"); ok {
		return ofJSON(text, rest)
	}
	return text
}

// unquoted returns text without its quotes. Where the first byte is one, old
// versions of Express take off the last as well, whatever that is.
func unquoted(text string) string {
	if n := len(text); n > 1 && text[0] == '"' {
		return text[1 : n-1]
	}
	return text
}

// ofJSON returns what text, which is j: and rest, stands for.
func ofJSON(text, rest string) string {
	var v any
	if json.Unmarshal([]byte(rest), &v) != nil {
		return text
	}
	if s, ok := v.(string); ok {
		return s
	}
	one, err := json.Marshal(v)
	if err != nil {
		return text
	}
	return "j:" + string(one)
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
		case c == '%' && i+2 < len(text) && isHex(text[i+1]) && isHex(text[i+2]):
			b = append(b, hex(text[i+1])<<4|hex(text[i+2]))
			i += 2
		default:
			b = append(b, c)
		}
	}
	return string(b)
}

// Plus says whether a + is a space.
type Plus bool

// The two readings of a +.
const (
	PlusIsPlus  Plus = false
	PlusIsSpace Plus = true
)

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

func hex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// IsCredentials reports whether a header field, by its canonical name, has
// credentials: a scheme and what belongs to it.
func IsCredentials(field string) bool {
	return field == "Authorization" || field == "Proxy-Authorization"
}

// Credentials returns the value of an Authorization field with its scheme in
// one form, such as Bearer, and one space after it. What follows Basic is encoded
// again, for there are many ways to write the same in base64, and so is the
// signature of a Bearer token that has three parts, as a JWT. It allocates
// nothing if text is so already.
func Credentials(text string) string {
	text = strings.Trim(text, " \t")
	end := strings.IndexAny(text, " \t")
	if end < 0 {
		return text // no scheme, or nothing else
	}
	scheme, rest := text[:end], strings.TrimLeft(text[end:], " \t")
	name, one := schemeOf(scheme), rest
	switch name {
	case "Basic":
		one = basic(rest)
	case "Bearer":
		one = bearer(rest)
	}
	if name == scheme && one == rest && text[end] == ' ' && len(rest) == len(text)-end-1 {
		return text
	}
	return name + " " + one
}

// schemeOf returns a scheme with its first letter large and the others small.
func schemeOf(scheme string) string {
	for _, known := range [...]string{"Bearer", "Basic", "Digest", "Token", "Negotiate"} {
		if strings.EqualFold(scheme, known) {
			return known
		}
	}
	small := strings.ToLower(scheme)
	return strings.ToUpper(small[:1]) + small[1:]
}

// basic returns base64 of the same bytes, in the form of RFC 4648, of text in
// either alphabet, with anything else in between: that is what Node and PHP read.
func basic(text string) string {
	digits := digits(text)
	b, err := base64.RawStdEncoding.DecodeString(digits)
	if err != nil {
		return text
	}
	return base64.StdEncoding.EncodeToString(b)
}

// bearer returns a token of three parts with its last in one form. The other two
// are signed as they are.
func bearer(token string) string {
	if strings.Count(token, ".") != 2 {
		return token
	}
	at := strings.LastIndexByte(token, '.') + 1
	b, err := base64.RawStdEncoding.DecodeString(digits(token[at:]))
	if err != nil || len(b) == 0 {
		return token
	}
	signature := base64.RawURLEncoding.EncodeToString(b)
	if signature == token[at:] {
		return token
	}
	return token[:at] + signature
}

// digits returns those of base64 in text, in the standard alphabet. One that is
// left over at the end stands for no byte and is left out.
func digits(text string) string {
	b := make([]byte, 0, len(text))
	for i := range len(text) {
		switch c := text[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '+', c == '/':
			b = append(b, c)
		case c == '-':
			b = append(b, '+')
		case c == '_':
			b = append(b, '/')
		}
	}
	if len(b)%4 == 1 {
		b = b[:len(b)-1]
	}
	return string(b)
}

// SameName reports whether some server takes name for want: PHP reads a dot or a
// space as an underscore, and name[] and name[x] as lists called name; others do
// not tell large letters from small ones.
func SameName(name, want string) bool {
	name, want = base(name), base(want)
	if len(name) != len(want) || name == "" {
		return false
	}
	for i := range len(name) {
		if fold(name[i]) != fold(want[i]) {
			return false
		}
	}
	return true
}

// SameField is SameName for header fields: CGI, and what came after it, writes
// X-Api-Key and X_Api_Key alike.
func SameField(name, want string) bool {
	if len(name) != len(want) {
		return false
	}
	for i := range len(name) {
		a, b := fold(name[i]), fold(want[i])
		if a == '-' {
			a = '_'
		}
		if b == '-' {
			b = '_'
		}
		if a != b {
			return false
		}
	}
	return true
}

// base returns a name without the spaces before it and what makes it a list.
func base(name string) string {
	name = strings.TrimLeft(name, " ")
	if i := strings.IndexByte(name, '['); i > 0 {
		return name[:i]
	}
	return name
}

func fold(c byte) byte {
	switch {
	case c >= 'A' && c <= 'Z':
		return c | 0x20
	case c == '.', c == ' ', c == '[':
		return '_'
	}
	return c
}
