package spelling

import (
	"bytes"
	"encoding/base64"
	"strings"
)

// isClearBase64 reports whether text consists of base64 digits, of either alphabet, and
// padding at its end.
func isClearBase64(text string) bool {
	text = strings.TrimRight(text, "=")
	for i := range len(text) {
		if digit(text[i]) == 0 {
			return false
		}
	}
	return true
}

// decoder is how a server reads base64 that is not clear.
type decoder struct {
	standard bool // only the standard alphabet, not that of URLs
	padding  padding
}

// padding is what an equals sign means. Other bytes that are not digits are skipped.
type padding uint8

const (
	endsFirst   padding = iota // the first one is the end, as in Node
	endsInPlace                // it is the end if it completes four digits, as in Python
	endsNever                  // it is skipped, as in PHP
)

// decoders returns those of Node, Python and PHP.
func decoders() [3]decoder {
	return [...]decoder{{}, {standard: true, padding: endsInPlace}, {standard: true, padding: endsNever}}
}

// basic returns the base64 of the same bytes in the form of RFC 4648. It drops a NUL in
// the password and what follows: crypt in C, which nginx uses, stops there.
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

// bearer returns a token with its base64 in one form. In a token with three parts, the
// last part is changed at any length; the others are signed as they are written.
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

// inOneForm returns the base64 of text in one form, or text if it cannot be decoded.
func inOneForm(text string, d decoder) string {
	b, err := base64.RawStdEncoding.DecodeString(string(d.appendDigits(nil, text)))
	if err != nil || len(b) == 0 {
		return text
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// isAnyLogin reports whether some server reads a name and a password in text.
func isAnyLogin(text string) bool {
	for _, d := range decoders() {
		if isLogin(text, d) {
			return true
		}
	}
	return false
}

// isLogin reports whether text looks like the base64 of a name and a password: it has a
// colon and no control character, and does not start like a JSON object, as a JWT does. A
// token that looks like one by accident is counted in one more form.
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

// appendDigits appends to dst the base64 digits that d reads in text, in the standard
// alphabet. A last digit that does not make a byte is dropped.
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

// whole returns b without a last digit that does not make a byte.
func whole(b []byte) []byte {
	if len(b)%4 == 1 {
		return b[:len(b)-1]
	}
	return b
}

// value64 returns the value of a digit of the standard alphabet.
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

// digit returns a base64 digit in the standard alphabet, or 0 if c is not one.
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
