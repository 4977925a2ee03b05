package spelling

import "strings"

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

// IsTokenByte reports whether c may stand in a token.
func IsTokenByte(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
