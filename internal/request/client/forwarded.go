package client

import (
	"net/netip"
	"strings"

	"github.com/headgate/headgate/internal/request/spelling"
)

const (
	// maxElements is how many elements of a header field are read: no real chain of
	// proxies is longer.
	maxElements = 64
	maxElement  = 512 // longest element, in bytes
)

// lastPlain returns the address in the last element of a line of X-Forwarded-For, the
// rest of the line, and whether there is more of it. The address is the zero Addr if the
// element has none.
func lastPlain(line string) (addr netip.Addr, rest string, more bool) {
	element, rest, more := cutLast(line, strings.LastIndexByte(line[max(0, len(line)-maxElement):], ','))
	addr = parseNode(trim(element))
	return addr, rest, more
}

// lastForwarded is lastPlain for a line of Forwarded.
func lastForwarded(line string) (addr netip.Addr, rest string, more bool) {
	element, rest, more := cutLast(line, lastComma(line[max(0, len(line)-maxElement):]))
	if node, ok := forNode(element); ok {
		addr = parseNode(node)
	}
	return addr, rest, more
}

// cutLast cuts line at the comma found at index i of its last maxElement
// bytes, and gives up on longer elements.
func cutLast(line string, i int) (element, rest string, more bool) {
	skipped := max(0, len(line)-maxElement)
	switch {
	case i >= 0:
		return line[skipped+i+1:], line[:skipped+i], true
	case skipped > 0:
		return "", "", false
	}
	return line, "", false
}

// lastComma returns the index of the last comma outside a quoted string, or -1. It reads
// backwards, so that a quote that the client left open cannot hide what the proxies
// appended.
func lastComma(s string) int {
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch s[i] {
		case '"':
			if !quoted || !spelling.Quoted(s, i) {
				quoted = !quoted
			}
		case ',':
			if !quoted {
				return i
			}
		}
	}
	return -1
}

// forNode returns the value of the "for" parameter of a Forwarded element. It reports
// false if the element is invalid or does not have exactly one.
func forNode(element string) (node string, ok bool) {
	for more := true; more; {
		var pair string
		pair, element, more = CutUnquoted(element, ';')
		name, value, found := strings.Cut(trim(pair), "=")
		if !found || !spelling.IsToken(name) {
			return "", false
		}
		value, valid := unquote(value)
		if !valid {
			return "", false
		}
		if strings.EqualFold(name, "for") {
			if ok {
				return "", false
			}
			node, ok = value, true
		}
	}
	return node, ok
}

// CutUnquoted is strings.Cut at the first sep that is not inside a quoted string.
func CutUnquoted(s string, sep byte) (before, after string, found bool) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '\\' && quoted:
			i++
		case s[i] == sep && !quoted:
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// unquote returns the value of a token or a quoted string. Tokens may contain colons and
// brackets, which many proxies do not quote. Escapes stay as they are, since no address
// has any.
func unquote(value string) (string, bool) {
	if !strings.HasPrefix(value, `"`) {
		return value, value != "" && strings.IndexFunc(value, func(c rune) bool {
			return (c >= 0x80 || !spelling.IsTokenByte(byte(c))) && c != ':' && c != '[' && c != ']'
		}) < 0
	}
	for i := 1; i < len(value); i++ {
		switch value[i] {
		case '\\':
			i++
		case '"':
			return value[1:i], i == len(value)-1
		}
	}
	return "", false
}

func trim(s string) string { return strings.Trim(s, " \t") }

// parseNode returns the address in s, unmapped and without a zone. It may have a port,
// and an IPv6 address may have brackets. For anything else it returns the zero Addr:
// names, "unknown", obfuscated identifiers and the unspecified address.
func parseNode(s string) netip.Addr {
	host := s
	if inner, ok := strings.CutPrefix(s, "["); ok {
		var port string
		if host, port, ok = strings.Cut(inner, "]"); !ok || !strings.Contains(host, ":") {
			return netip.Addr{}
		}
		if port != "" && (port[0] != ':' || !isPort(port[1:])) {
			return netip.Addr{}
		}
	} else if name, port, ok := strings.Cut(s, ":"); ok && !strings.Contains(port, ":") {
		if host = name; !isPort(port) {
			return netip.Addr{}
		}
	}
	// ParseAddr's errors allocate, so most texts that are no address are sorted out
	// first.
	if host == "" || len(host) > 64 || strings.IndexByte("0123456789abcdefABCDEF:", host[0]) < 0 {
		return netip.Addr{}
	}
	addr, err := netip.ParseAddr(host)
	addr = addr.WithZone("").Unmap()
	if err != nil || addr.IsUnspecified() {
		return netip.Addr{}
	}
	return addr
}

// isPort reports whether s is a port or, as RFC 7239 allows, an obfuscated one.
func isPort(s string) bool {
	if obfuscated, ok := strings.CutPrefix(s, "_"); ok {
		return spelling.IsToken(obfuscated)
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
		if n = n*10 + int(s[i]-'0'); n > 65535 {
			return false
		}
	}
	return s != ""
}
