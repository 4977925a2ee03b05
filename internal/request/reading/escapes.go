package reading

import (
	"strings"

	"github.com/headgate/headgate/internal/request/spelling"
)

// keeping is what decoding leaves escaped.
type keeping uint8

const (
	decodeAll   keeping = iota
	keepSlashes         // %2f stays escaped
)

// escaped returns the byte of the escape, such as %2f, at path[i:], and false if there is
// none.
func escaped(path string, i int) (byte, bool) {
	if path[i] != '%' || i+2 >= len(path) || !spelling.IsHex(path[i+1]) || !spelling.IsHex(path[i+2]) {
		return 0, false
	}
	return spelling.Hex(path[i+1])<<4 | spelling.Hex(path[i+2]), true
}

// escapes reports whether path has escapes, and whether one is of a slash.
func escapes(path string) (has, slash bool) {
	for i := range len(path) {
		if path[i] == '%' {
			if c, ok := escaped(path, i); ok {
				has, slash = true, slash || c == '/'
			}
		}
	}
	return has, slash
}

// appendDecoded appends path percent-decoded once. Invalid escapes stay.
func appendDecoded(dst []byte, path string, keep keeping) []byte {
	for i := 0; i < len(path); i++ {
		c, ok := escaped(path, i)
		switch {
		case !ok:
			dst = append(dst, path[i])
		case c == '/' && keep == keepSlashes:
			dst = append(dst, path[i:i+3]...)
			i += 2
		default:
			dst = append(dst, c)
			i += 2
		}
	}
	return dst
}

// appendNecessary appends path, starting with a slash, with those bytes decoded for which
// is returns true.
func appendNecessary(dst []byte, path string, is func(path string, at int, c byte) bool) []byte {
	if path == "" || path[0] != '/' {
		dst = append(dst, '/')
	}
	for i := 0; i < len(path); i++ {
		if c, ok := escaped(path, i); ok && is(path, i, c) {
			dst = append(dst, c)
			i += 2
			continue
		}
		dst = append(dst, path[i])
	}
	return dst
}

// isUnwritable reports whether a byte cannot appear unescaped in a path (RFC 3986) and
// has no special meaning to any server.
func isUnwritable(_ string, _ int, c byte) bool {
	switch c {
	case ' ', '"', '<', '>', '^', '`', '{', '|', '}':
		return true
	}
	return c >= 0x80
}

// appendEscaped appends path with everything escaped that a path cannot contain.
func appendEscaped(dst []byte, path string) []byte {
	for i := range len(path) {
		dst = appendWritable(dst, path[i], isWritable(path[i]))
	}
	return dst
}

// Escape returns path with everything escaped that a path cannot contain. Existing
// escapes stay.
func Escape(path string) string {
	dst := make([]byte, 0, len(path)+8)
	for i := range len(path) {
		dst = appendWritable(dst, path[i], path[i] == '%' || isWritable(path[i]))
	}
	return string(dst)
}

// appendWritable appends c, escaped unless asItIs.
func appendWritable(dst []byte, c byte, asItIs bool) []byte { //nolint:revive // a fact, not a mode
	const digits = "0123456789ABCDEF"
	if asItIs {
		return append(dst, c)
	}
	return append(dst, '%', digits[c>>4], digits[c&15])
}

// isWritable reports whether c can appear unescaped in a path.
func isWritable(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		strings.IndexByte("/-._~!$&'()*+,;=:@", c) >= 0
}
