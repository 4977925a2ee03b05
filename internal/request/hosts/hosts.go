// Package hosts says by which names a door may be called. It is what stands
// between a door on this machine and the web pages in its browser: one may send
// requests there under its own name (cross-site request forgery), or make its
// own name lead there and read the answers too (DNS rebinding).
package hosts

import (
	"net/http"
	"net/netip"
	"strings"
)

// IsLocal reports whether host, perhaps with a port, names this machine.
func IsLocal(host string) bool {
	name := withoutPort(host)
	if strings.EqualFold(name, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Unmap().IsLoopback()
}

// withoutPort returns the name or address of host.
func withoutPort(host string) string {
	if strings.HasPrefix(host, "[") {
		name, port, closed := strings.Cut(host[1:], "]")
		if !closed || port != "" && port[0] != ':' {
			return "" // it names nothing
		}
		return name
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host, ':') == i {
		return host[:i]
	}
	return host
}

// Names are those by which a door may be called.
type Names struct {
	known    []string // in lower case; *.example.org for all below
	anything bool
	strict   bool
}

// Options say which those are.
type Options struct {
	Known []string // names that the operator has given: example.org, *.example.org for all below that, or * for any.
	// Strict holds callers to Known and the names of this machine, whatever
	// they are. Otherwise it is only browsers, which say where a request comes
	// from.
	Strict bool
}

// New returns the names.
func New(o Options) *Names {
	n := &Names{strict: o.Strict || len(o.Known) > 0}
	for _, k := range o.Known {
		n.anything = n.anything || k == "*"
		n.known = append(n.known, strings.TrimSuffix(strings.ToLower(k), "."))
	}
	return n
}

// Allows reports whether r came by a name that is allowed. An address is: no
// page can make it its own.
func (n *Names) Allows(r *http.Request) bool {
	if n.anything || r.Host == "" || !n.strict && !fromBrowser(r) {
		return true
	}
	name := strings.TrimSuffix(withoutPort(r.Host), ".")
	if strings.EqualFold(name, "localhost") {
		return true
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	for _, k := range n.known {
		if strings.EqualFold(name, k) || len(k) > 2 && k[0] == '*' && len(name) >= len(k) && strings.EqualFold(name[len(name)-len(k)+1:], k[1:]) {
			return true
		}
	}
	return false
}

// fromBrowser reports whether r has fields that browsers send and cannot be made
// to leave out. To an address without TLS that is not this machine they send none
// that tells of the page with a GET to its own origin, but always the languages of
// their user; programs that do so too tell the mode, which browsers then do not.
func fromBrowser(r *http.Request) bool {
	if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		return true
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	return reads && len(r.Header["Accept-Language"]) > 0 && r.Header.Get("Sec-Fetch-Mode") == ""
}
