package spelling

import (
	"encoding/base64"
	"strings"
)

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
	name, rest := split(text)
	if name == "" {
		return text
	}
	one := rest
	switch name {
	case "Basic":
		one = basic(rest, decoder{})
	case "Bearer":
		one = bearer(rest, decoder{})
	}
	if n := len(name); len(text) == n+1+len(one) && text[:n] == name && text[n] == ' ' && text[n+1:] == one {
		return text
	}
	return name + " " + one
}

// split returns the scheme of credentials, in one form, and what follows it. The
// scheme is empty if there is none, or nothing else.
func split(text string) (scheme, rest string) {
	text = strings.Trim(text, " \t")
	end := strings.IndexAny(text, " \t")
	if end < 0 {
		return "", text
	}
	return schemeOf(text[:end]), strings.TrimLeft(text[end:], " \t")
}

// IsClearCredentials reports whether all servers read what follows the scheme
// alike. With bytes in base64 that are none of its digits, or any behind the
// padding, some read what is before them, some skip them, and some refuse it.
func IsClearCredentials(text string) bool {
	name, one := split(text)
	switch name {
	case "Basic":
		return isClearBase64(one) && !strings.ContainsAny(one, "-_")
	case "Bearer":
		return strings.Count(one, ".") != 2 || isClearBase64(one[strings.LastIndexByte(one, '.')+1:])
	}
	return true
}

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

// basic returns base64 of the same bytes, in the form of RFC 4648.
func basic(text string, d decoder) string {
	b, err := base64.RawStdEncoding.DecodeString(d.digits(text))
	if err != nil {
		return text
	}
	return base64.StdEncoding.EncodeToString(b)
}

// bearer returns a token of three parts with its last in one form. The other two
// are signed as they are.
func bearer(token string, d decoder) string {
	if strings.Count(token, ".") != 2 {
		return token
	}
	at := strings.LastIndexByte(token, '.') + 1
	b, err := base64.RawStdEncoding.DecodeString(d.digits(token[at:]))
	if err != nil || len(b) == 0 {
		return token
	}
	signature := base64.RawURLEncoding.EncodeToString(b)
	if signature == token[at:] {
		return token
	}
	return token[:at] + signature
}

// AppendCredentials appends to dst what servers read in credentials that are not
// clear, besides what [Credentials] says.
func AppendCredentials(dst []string, text string) []string {
	scheme, rest := split(text)
	for _, p := range [...]padding{endsInPlace, endsNever} {
		switch scheme {
		case "Basic":
			dst = append(dst, scheme+" "+basic(rest, decoder{standard: true, padding: p}))
		case "Bearer":
			dst = append(dst, scheme+" "+bearer(rest, decoder{padding: p}))
		}
	}
	return dst
}

// digits returns those of base64 in text that d reads, in the standard alphabet. One
// that is left over at the end stands for no byte and is left out.
func (d decoder) digits(text string) string {
	b := make([]byte, 0, len(text))
	equals := 0
	for i := range len(text) {
		c := digit(text[i])
		switch {
		case text[i] == '=' && d.padding == endsFirst:
			return whole(b)
		case text[i] == '=' && d.padding == endsInPlace:
			if equals++; len(b)%4 >= 2 && len(b)%4+equals >= 4 {
				return whole(b)
			}
		case c != 0 && (c == text[i] || !d.standard):
			b, equals = append(b, c), 0
		}
	}
	return whole(b)
}

// whole returns b without a digit that is left over.
func whole(b []byte) string {
	if len(b)%4 == 1 {
		b = b[:len(b)-1]
	}
	return string(b)
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
