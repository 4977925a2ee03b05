package spelling

import "strings"

// SameName reports whether some server may take name for want, which it is not. PHP reads
// a dot, a space or an unclosed [ as an underscore, and ends names at a NUL; name[] and
// name[x] are lists called name; other servers ignore case. So names with the same ASCII
// letters and digits are the same, up to a NUL or, if want has none, a bracket.
func SameName(name, want string) bool {
	before, _, _ := strings.Cut(name, "\x00")
	if alike(name, want) || alike(before, want) {
		return true
	}
	before = strings.TrimLeft(before, " [")
	i := strings.IndexAny(before, "[]")
	return i > 0 && !strings.ContainsAny(want, "[]") && alike(before[:i], want)
}

// alike reports whether two names have the same ASCII letters and digits. Names without
// any must be equal.
func alike(a, b string) bool {
	i, j, found := 0, 0, false
	for {
		for i < len(a) && !isNameByte(a[i]) {
			i++
		}
		for j < len(b) && !isNameByte(b[j]) {
			j++
		}
		if i == len(a) || j == len(b) {
			return i == len(a) && j == len(b) && (found || a == b)
		}
		if fold(a[i]) != fold(b[j]) {
			return false
		}
		i, j, found = i+1, j+1, true
	}
}

// isNameByte reports whether c is a letter or a digit.
func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// SameField is SameName for header fields: CGI and its successors read X-Api-Key and
// X_Api_Key alike.
func SameField(name, want string) bool {
	if len(name) != len(want) {
		return false
	}
	for i := range len(name) {
		if fold(name[i]) != fold(want[i]) {
			return false
		}
	}
	return true
}

func fold(c byte) byte {
	switch {
	case c >= 'A' && c <= 'Z':
		return c | 0x20
	case c == '.', c == ' ', c == '[', c == '-':
		return '_'
	}
	return c
}

// IsToken reports whether text is a token (RFC 9110, 5.6.2), such as a method or the
// name of a header field.
func IsToken(text string) bool {
	for i := range len(text) {
		if !IsTokenByte(text[i]) {
			return false
		}
	}
	return text != ""
}

// IsTokenByte reports whether c may appear in a token.
func IsTokenByte(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
