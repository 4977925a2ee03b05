// Package httprequest gives rules access to an HTTP request. The reverse proxy uses it
// for requests that it receives, forward-auth for those that are described to it.
package httprequest

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
)

// Request is a rules.Request. It copies only what rules read, and can be reused for the
// next request.
type Request struct {
	Method string // the HTTP method
	// Path is the path that the upstream gets, percent-encoded. Rules consider all ways
	// to read it.
	Path     string
	RawQuery string      // the raw query, without the question mark
	Host     string      // the requested host, may be empty
	Header   http.Header // the other header fields; Host is ignored

	Described bool // a trusted proxy describes it

	clients  *client.Resolver
	address  netip.Addr
	remote   string // the peer; empty if the request is that of another client
	group    string // key of address, once computed
	identity client.Identity
}

// SetRequest makes q the request r. identity has the claims of its tokens.
func (q *Request) SetRequest(r *http.Request, clients *client.Resolver, identity client.Identity) {
	*q = Request{Method: r.Method, Path: r.URL.EscapedPath(), RawQuery: r.URL.RawQuery, Host: r.Host, Header: r.Header}
	q.SetClient(clients.Resolve(r.RemoteAddr, r.Header), clients, identity)
	q.remote = r.RemoteAddr
}

// SetClient sets who sent the request: a client at address, grouped by clients, with an
// identity. The zero Addr is an unknown client.
func (q *Request) SetClient(address netip.Addr, clients *client.Resolver, identity client.Identity) {
	q.address, q.clients, q.group, q.identity = address, clients, "", identity
}

// SentBy sets who sent the tokens of the request; see [client.Identity.From].
func (q *Request) SentBy(by client.Sender) { q.identity.From(by) }

// Recheck is [client.Identity.Recheck].
func (q *Request) Recheck() bool { return q.identity.Recheck() }

// Refusal is [client.Identity.Refusal]. Call it after the rules have been matched.
func (q *Request) Refusal() error { return q.identity.Refusal() }

// ClientIP implements rules.Request. Every HTTP request has a client, even if its address
// is unknown.
func (q *Request) ClientIP() netip.Addr {
	if !q.address.IsValid() {
		return rules.SomeAddress()
	}
	return q.address
}

// Clients implements rules.DisputedRequest.
func (q *Request) Clients() []string {
	if q.address.IsValid() || q.remote == "" {
		return nil
	}
	var groups []string
	for _, address := range q.clients.Disputed(q.remote, q.Header) {
		groups = append(groups, q.clients.Group(address))
	}
	return groups
}

// Trusted implements rules.TrustedRequest: the peer, or who describes the request, is a
// trusted proxy.
func (q *Request) Trusted() bool {
	return q.Described || q.remote != "" && q.clients.Trusts(q.remote)
}

// Attribute implements rules.Request. If a header, parameter or cookie is repeated, it
// returns the first value.
func (q *Request) Attribute(a rules.Attribute) (value string, ok bool) {
	value, ok, _ = q.Read(a)
	return value, ok
}

// Read implements rules.UnclearRequest.
func (q *Request) Read(a rules.Attribute) (value string, ok, unclear bool) {
	var v client.Value
	switch a.Kind {
	case rules.Method:
		return q.Method, true, false
	case rules.Path:
		return q.Path, true, false
	case rules.Host:
		return q.Host, q.Host != "", false
	case rules.ClientIP:
		if q.group == "" {
			q.group = q.clients.Group(q.address)
		}
		return q.group, true, false
	case rules.Header:
		if a.Name == "Host" { // net/http keeps it elsewhere
			return q.Host, q.Host != "", false
		}
		v = client.ReadHeader(q.Header, a.Name)
	case rules.Query:
		v = client.ReadQuery(q.RawQuery, a.Name)
	case rules.Cookie:
		v = client.ReadCookie(q.Header, a.Name)
	case rules.JWT:
		v = q.identity.Read(a.Name)
	case rules.Other: // a plain HTTP request has no such thing
	}
	return v.Text, v.OK, v.Unclear
}

// IsHost reports whether s is a name or an address, perhaps with a port, or empty.
// Upstreams disagree about anything else: of "a,b" in X-Forwarded-Host some read a and
// some b, some decode %61, and some cut "a:b" at the colon.
func IsHost(s string) bool {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		inside, port, closed := strings.Cut(inner, "]")
		address, zone, _ := strings.Cut(inside, "%") // %eth0
		_, err := netip.ParseAddr(address)
		return closed && err == nil && isName(zone) && (port == "" || port[0] == ':' && isPort(port[1:]))
	}
	name, port, ported := strings.Cut(s, ":")
	if name == "" {
		return !ported
	}
	// A dot at the end stands for the root of all names.
	return name[0] != '.' && !strings.Contains(name, "..") && isName(name) && isPort(port)
}

// isName reports whether s has the characters of names only.
func isName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// isPort reports whether s consists of digits. A port may be empty (RFC 3986, 3.2.3).
func isPort(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// IsQuery reports whether s has no space, control character or #. HTTP/2 allows the first
// two, which would end the target in a request line of HTTP/1; many upstreams cut the
// query at a #.
func IsQuery(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f || s[i] == '#' {
			return false
		}
	}
	return true
}
