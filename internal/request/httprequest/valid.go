package httprequest

import (
	"net/netip"
	"strings"
)

// IsHost reports whether s has only what names, addresses and ports are made of.
// Upstreams read other things each in their own way: of "a,b" in X-Forwarded-Host,
// some take a and some b, and some decode %61.
func IsHost(s string) bool {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		inside, port, closed := strings.Cut(inner, "]")
		address, zone, _ := strings.Cut(inside, "%") // %eth0
		_, err := netip.ParseAddr(address)
		return closed && err == nil && (port == "" || port[0] == ':') && IsHost(port) && IsHost(zone)
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~:", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// IsQuery reports whether s has no space, no control character and no #. HTTP/2 can
// bring the first two, and in a request line of HTTP/1 what follows would not be the
// query's; behind a # many upstreams read nothing.
func IsQuery(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f || s[i] == '#' {
			return false
		}
	}
	return true
}
