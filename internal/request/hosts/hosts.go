// Package hosts decides under which names a door may be called. It protects doors on this
// machine from web pages in its browser, which could send requests from their own origin
// (cross-site request forgery), or point their own name here and read the answers (DNS
// rebinding).
package hosts

import (
	"net/http"
	"net/netip"
	"strings"
)

// IsLocal reports whether host, with or without a port, names this machine.
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
			return "" // invalid
		}
		return name
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host, ':') == i {
		return host[:i]
	}
	return host
}

// Names are the names under which a door may be called.
type Names struct {
	known    []string // in lower case; *.example.org for all below
	anything bool
	strict   bool
}

// Options configure [Names].
type Options struct {
	Known []string // configured names: example.org, *.example.org for all names below it, or * for any
	// Strict checks all callers against Known and the names of this machine. Otherwise
	// only browsers are checked.
	Strict bool
}

// New returns the Names for o.
func New(o Options) *Names {
	n := &Names{strict: o.Strict || len(o.Known) > 0}
	for _, k := range o.Known {
		n.anything = n.anything || k == "*"
		n.known = append(n.known, strings.TrimSuffix(strings.ToLower(k), "."))
	}
	return n
}

// Allows reports whether the host of r is allowed. IP addresses always are: a web page
// cannot point them here.
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

// fromBrowser reports whether r has fields that browsers always send. With a GET to its
// own origin, over plain HTTP and not on this machine, a page sends neither Origin nor
// Sec-Fetch-Site, but always Accept-Language. Programs that send that field also send
// Sec-Fetch-Mode, which browsers do not do then.
func fromBrowser(r *http.Request) bool {
	if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		return true
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	return reads && len(r.Header["Accept-Language"]) > 0 && r.Header.Get("Sec-Fetch-Mode") == ""
}
