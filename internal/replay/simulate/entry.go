package simulate

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/internal/replay/accesslog"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
)

// entry is one request of a log. It is the rules.TrustedRequest of a record.
type entry struct {
	accesslog.Record
	at      int64 // Time, corrected for clock jumps
	address netip.Addr
	group   string // that the address is counted by
	clients *client.Resolver
	applies [2]applying
}

// ClientIP implements rules.Request.
func (e *entry) ClientIP() netip.Addr { return e.address }

// Trusted implements rules.TrustedRequest: the logged peer is a trusted proxy.
func (e *entry) Trusted() bool { return !e.OnlyForwarded && e.clients.TrustsAddr(e.ClientAddr()) }

// Attribute implements rules.Request.
func (e *entry) Attribute(a rules.Attribute) (value string, ok bool) {
	switch a.Kind {
	case rules.Method:
		return e.Method, e.Method != ""
	case rules.Path:
		return e.Path, true // rules clean it
	case rules.Host:
		return e.Host, e.Host != ""
	case rules.ClientIP:
		return e.group, true
	case rules.Header:
		switch a.Name {
		case "Host":
			return e.Host, e.Host != ""
		case "X-Forwarded-For":
			return e.ForwardedFor, e.ForwardedFor != ""
		}
		return e.Field(accesslog.Header, a.Name)
	case rules.Query:
		if v := client.ReadQuery(e.RawQuery, a.Name); v.OK {
			return v.Text, true
		}
		return e.Field(accesslog.Query, a.Name)
	case rules.Cookie:
		if value, ok := e.Field(accesslog.Cookie, a.Name); ok {
			return value, true
		}
		if line, ok := e.Field(accesslog.Header, "Cookie"); ok {
			v := client.ReadCookie(http.Header{"Cookie": {line}}, a.Name)
			return v.Text, v.OK
		}
		return "", false
	case rules.Other:
		return e.Field(accesslog.Other, a.Name)
	case rules.JWT:
	}
	return "", false // logs have no tokens
}

// addresses finds the client of an entry. It caches results, since addresses
// repeat.
type addresses struct {
	clients *client.Resolver
	whole4  bool // IPv4 addresses are counted one by one
	known   map[string]known
}

type known struct {
	address netip.Addr
	group   string
}

// maxKnown is the size of the cache.
const maxKnown = 1 << 14

func newAddresses(clients *client.Resolver) *addresses {
	any4 := netip.AddrFrom4([4]byte{192, 0, 2, 1})
	return &addresses{clients, clients.Group(any4) == any4.String(), map[string]known{}}
}

// set sets e's address from the logged peer and, if the peer is a trusted proxy,
// from the logged X-Forwarded-For.
func (a *addresses) set(e *entry) {
	e.clients = a.clients
	if e.ForwardedFor == "" {
		if addr, err := netip.ParseAddr(e.Client); err == nil && addr.Is4() && a.whole4 {
			// Its text is the only one it has, so that it is the group as well.
			e.address, e.group = addr, e.Client
			return
		}
		if k, ok := a.known[e.Client]; ok {
			e.address, e.group = k.address, k.group
			return
		}
	}
	peer := e.ClientAddr()
	e.address = peer
	if e.ForwardedFor != "" && peer.IsValid() {
		e.address = a.clients.Resolve(netip.AddrPortFrom(peer, 0).String(), http.Header{"X-Forwarded-For": {e.ForwardedFor}})
	}
	e.group = a.clients.Group(e.address)
	if !peer.IsValid() && e.Client != "" {
		e.group = e.Client // a name, as Apache logs with HostnameLookups
	}
	if e.ForwardedFor == "" {
		if len(a.known) >= maxKnown {
			clear(a.known)
		}
		a.known[strings.Clone(e.Client)] = known{e.address, strings.Clone(e.group)}
	}
}

// named returns a field by the name that rules have for it, or an entry's.
func (e *entry) named(name string) (string, bool) {
	a, err := rules.ParseAttribute(name)
	if err != nil {
		return "", false
	}
	return e.Attribute(a)
}
