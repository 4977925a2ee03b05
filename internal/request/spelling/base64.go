package spelling

import (
	"bytes"
	"encoding/base64"
	"strings"
)

// isClearBase64 reports whether text is digits, of either alphabet, and padding.
func isClearBase64(text string) bool {
	text = strings.TrimRight(text, "=")
	for i := range len(text) {
		if digit(text[i]) == 0 {
			return false
		}
	}
	return true
}

// decoder is how somebody reads base64 that is not clear.
type decoder struct {
	standard bool // in the standard alphabet alone; otherwise in that of URLs, too
	padding  padding
}

// padding is what an equals sign means. Anything else that is no digit is skipped.
type padding uint8

const (
	endsFirst   padding = iota // the first is the end, as to Node
	endsInPlace                // it is the end where it completes four digits, as to Python
	endsNever                  // it is skipped, as by PHP
)

// decoders are those of Node, Python and PHP.
func decoders() [3]decoder {
	return [...]decoder{{}, {standard: true, padding: endsInPlace}, {standard: true, padding: endsNever}}
}

// basic returns base64 of the same bytes, in the form of RFC 4648, without a NUL in
// the password and what is behind it: crypt in C, by which nginx checks it, ends there.
func basic(text string, d decoder) string {
	b, err := base64.RawStdEncoding.DecodeString(string(d.appendDigits(nil, text)))
	if err != nil {
		return text
	}
	if _, password, ok := bytes.Cut(b, []byte(":")); ok {
		if n := bytes.IndexByte(password, 0); n >= 0 {
			b = b[:len(b)-len(password)+n]
		}
	}
	return base64.StdEncoding.EncodeToString(b)
}

// bearer returns a token with what is base64 in it in one form, of one with three
// parts its last at any length. What is signed is as it is in the others, or it is
// none.
func bearer(token string, d decoder) string {
	token = signed(token, d)
	if !isJWT(token) {
		return token
	}
	at := strings.LastIndexByte(token, '.') + 1
	one := inOneForm(token[at:], d)
	if one == token[at:] {
		return token
	}
	return token[:at] + one
}

// inOneForm returns the base64 of text in one form, and text if it has none.
func inOneForm(text string, d decoder) string {
	b, err := base64.RawStdEncoding.DecodeString(string(d.appendDigits(nil, text)))
	if err != nil || len(b) == 0 {
		return text
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// isAnyLogin reports whether some server reads a name and a password.
func isAnyLogin(text string) bool {
	for _, d := range decoders() {
		if isLogin(text, d) {
			return true
		}
	}
	return false
}

// isLogin reports whether base64 seems to be a name and a password: it has a colon,
// no control character, and does not begin as an object in JSON, as that of a JWT
// does. A token that seems to be one by accident is counted in one more form.
func isLogin(text string, d decoder) bool {
	var room [512]byte
	bits, n, colon := uint32(0), 0, false
	for i, c := range d.appendDigits(room[:0], text) {
		if bits, n = bits<<6|uint32(value64(c)), n+6; n < 8 {
			continue
		}
		n -= 8
		c = byte(bits >> n)
		if c < ' ' || c == 0x7f || c == '{' && i == 1 {
			return false
		}
		colon = colon || c == ':'
	}
	return colon
}

// appendDigits appends to dst the digits of base64 in text that d reads, in the
// standard alphabet. One that is left over at the end stands for no byte and is
// left out.
func (d decoder) appendDigits(dst []byte, text string) []byte {
	equals := 0
	for i := range len(text) {
		c := digit(text[i])
		switch {
		case text[i] == '=' && d.padding == endsFirst:
			return whole(dst)
		case text[i] == '=' && d.padding == endsInPlace:
			if equals++; len(dst)%4 >= 2 && len(dst)%4+equals >= 4 {
				return whole(dst)
			}
		case c != 0 && (c == text[i] || !d.standard):
			dst, equals = append(dst, c), 0
		}
	}
	return whole(dst)
}

// whole returns b without a digit that is left over.
func whole(b []byte) []byte {
	if len(b)%4 == 1 {
		return b[:len(b)-1]
	}
	return b
}

// value64 returns what a digit of the standard alphabet stands for.
func value64(c byte) byte {
	switch {
	case c >= 'A' && c <= 'Z':
		return c - 'A'
	case c >= 'a' && c <= 'z':
		return c - 'a' + 26
	case c >= '0' && c <= '9':
		return c - '0' + 52
	case c == '+':
		return 62
	}
	return 63
}

// digit returns a digit of base64 in the standard alphabet, or 0 for what is none.
func digit(c byte) byte {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '+', c == '/':
		return c
	case c == '-':
		return '+'
	case c == '_':
		return '/'
	}
	return 0
}
