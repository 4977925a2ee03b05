// Package client finds out who an HTTP client is: its address, also behind proxies, and
// the values in its request that it can be counted by. The HTTP doors and the httplimit
// middleware share it.
package client

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/gaissmai/bart"

	"github.com/headgate/headgate/internal/base/enum"
)

// Unknown is the key of clients whose address is not known. They share one count, so that
// hiding an address does not escape a limit.
const Unknown = "unknown"

// The prefixes to count by, unless others are set.
const (
	DefaultIPv4Prefix = 32 // every IPv4 address is a client
	// DefaultIPv6Prefix is /64, the smallest network that a customer gets. Within it a
	// client can use a new address for every request.
	DefaultIPv6Prefix = 64
)

// Source is the header field of a trusted proxy that names the client.
type Source uint8

// The sources.
const (
	// Either reads the field that is present. If both are and they disagree, the proxy
	// passed one of them on from the client, so the client is unknown.
	Either        Source = iota
	XForwardedFor        // reads X-Forwarded-For alone
	Forwarded            // reads Forwarded (RFC 7239) alone
)

// String returns the name of the header field, or "either".
func (s Source) String() string {
	return enum.Name(s, "source", "either", "X-Forwarded-For", "Forwarded")
}

// Config configures a [Resolver]. The zero Config trusts no proxy.
type Config struct {
	TrustedProxies []netip.Prefix // networks of proxies whose header fields are trusted
	// Hops is the number of proxies between a client and this process, for when their
	// addresses are not known. Each of them must append to the field. They are trusted at
	// any address, so no one else may be able to connect. It also works for Unix sockets,
	// whose peers have no address.
	Hops   int
	Source Source // the header field to read
	// IPv4Prefix and IPv6Prefix are the lengths of the prefixes to count by;
	// 0 means the default.
	IPv4Prefix, IPv6Prefix int
	// Ignored is called once, by the first request whose header fields name a client but
	// whose peer is no trusted proxy; optional.
	Ignored func(peer netip.Addr)
}

// Resolver finds the address of clients. It is immutable and safe for concurrent use.
type Resolver struct {
	trusted  *bart.Lite
	hops     int
	source   Source
	v4, v6   int
	ignored  func(netip.Addr)
	reported *atomic.Bool // ignored has been called, or there is none
}

// New returns a Resolver for c, or an error that says which value is wrong.
func New(c Config) (*Resolver, error) {
	r := &Resolver{
		trusted: new(bart.Lite), hops: c.Hops, source: c.Source,
		v4: cmp.Or(c.IPv4Prefix, DefaultIPv4Prefix), v6: cmp.Or(c.IPv6Prefix, DefaultIPv6Prefix),
		ignored: c.Ignored, reported: new(atomic.Bool),
	}
	r.reported.Store(c.Ignored == nil)
	switch {
	case r.v4 < 1 || r.v4 > 32:
		return nil, fmt.Errorf("IPv4 prefix length is %d, want 1 to 32", c.IPv4Prefix)
	case r.v6 < 1 || r.v6 > 128:
		return nil, fmt.Errorf("IPv6 prefix length is %d, want 1 to 128", c.IPv6Prefix)
	case r.hops < 0 || r.hops > maxElements:
		return nil, fmt.Errorf("hops is %d, want 0 to %d", c.Hops, maxElements)
	case r.source > Forwarded:
		return nil, fmt.Errorf("unknown header field: %s", c.Source)
	}
	for _, p := range c.TrustedProxies {
		unmapped, ok := unmap(p)
		if !ok {
			return nil, fmt.Errorf("trusted proxies: invalid network %s", p)
		}
		r.trusted.Insert(unmapped)
	}
	return r, nil
}

// unmap turns a network of IPv4-mapped addresses into the IPv4 network, because addresses
// are compared unmapped.
func unmap(p netip.Prefix) (netip.Prefix, bool) {
	if !p.IsValid() {
		return p, false
	}
	if !p.Addr().Is4In6() {
		return p.Masked(), true
	}
	if p.Bits() < 96 {
		return p, false
	}
	return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96).Masked(), true
}

// Resolve returns the address of the client, unmapped and without a zone. It is the zero
// Addr if the address is unknown, or if two header fields disagree. remoteAddr is the
// RemoteAddr of an [http.Request].
//
// The client is the peer, unless the peer is a trusted proxy. Then the header field is
// read from right to left: the first address that is not a trusted proxy is the client.
// Everything further left was chosen by the client and is ignored. An element without an
// address, or the 64th, ends the search, and the nearest proxy is the client.
func (r *Resolver) Resolve(remoteAddr string, h http.Header) netip.Addr {
	peer := parseNode(remoteAddr)
	xff, forwarded := h["X-Forwarded-For"], h["Forwarded"]
	if !r.trusts(0, peer) {
		if len(xff)+len(forwarded) > 0 && !r.reported.Load() && r.reported.CompareAndSwap(false, true) {
			r.ignored(peer)
		}
		return peer
	}
	switch {
	case r.source == XForwardedFor || r.source == Either && len(forwarded) == 0:
		return r.walk(peer, xff, lastPlain)
	case r.source == Forwarded || len(xff) == 0:
		return r.walk(peer, forwarded, lastForwarded)
	}
	client := r.walk(peer, xff, lastPlain)
	if r.walk(peer, forwarded, lastForwarded) != client {
		return netip.Addr{} // and not the peer, which rules may let do more
	}
	return client
}

// Disputed returns the two addresses that the header fields give for the client if they
// disagree, and so Resolve returns none. Otherwise it returns nil.
func (r *Resolver) Disputed(remoteAddr string, h http.Header) []netip.Addr {
	peer, xff, forwarded := parseNode(remoteAddr), h["X-Forwarded-For"], h["Forwarded"]
	if r.source != Either || len(xff) == 0 || len(forwarded) == 0 || !r.trusts(0, peer) {
		return nil
	}
	return []netip.Addr{r.walk(peer, xff, lastPlain), r.walk(peer, forwarded, lastForwarded)}
}

// TrustsAddr reports whether addr, unmapped and without a zone, is a trusted proxy.
func (r *Resolver) TrustsAddr(addr netip.Addr) bool { return r.trusts(r.hops, addr) }

// trusts reports whether the proxy at addr, hop steps away, may name the address before
// it.
func (r *Resolver) trusts(hop int, addr netip.Addr) bool {
	return hop < r.hops || addr.IsValid() && r.trusted.Contains(addr)
}

// walk returns the first address from the right that is not trusted, or the last trusted
// one if there is none.
func (r *Resolver) walk(nearest netip.Addr, lines []string, last func(string) (netip.Addr, string, bool)) netip.Addr {
	hop := 0
	for _, line := range slices.Backward(lines) {
		for rest, more := line, true; more; {
			var addr netip.Addr
			if addr, rest, more = last(rest); !addr.IsValid() {
				return nearest
			}
			if hop++; hop > maxElements {
				return nearest
			}
			nearest = addr
			if !r.trusts(hop, addr) {
				return addr
			}
		}
	}
	return nearest
}

// AppendGroup appends to dst the key of clients at addr: a prefix such as
// 2001:db8:1:2::/64, the address itself if the prefix covers all of it, or [Unknown] for
// the zero Addr.
func (r *Resolver) AppendGroup(dst []byte, addr netip.Addr) []byte {
	if !addr.IsValid() {
		return append(dst, Unknown...)
	}
	prefix := r.Network(addr)
	if prefix.IsSingleIP() {
		return prefix.Addr().AppendTo(dst)
	}
	return prefix.AppendTo(dst)
}

// Network returns the prefix that clients at addr are counted by. addr must be valid.
func (r *Resolver) Network(addr netip.Addr) netip.Prefix {
	addr = translated(addr.Unmap().WithZone(""))
	bits := r.v6
	if addr.Is4() {
		bits = r.v4
	}
	prefix, _ := addr.Prefix(bits) // bits is in range
	return prefix
}

// Group is [Resolver.AppendGroup] as a string.
func (r *Resolver) Group(addr netip.Addr) string {
	var space [48]byte
	return string(r.AppendGroup(space[:0], addr))
}

// translated returns the IPv4 address inside a NAT64 address, 64:ff9b::/96 (RFC 6052).
// Counted by /64, all IPv4 clients behind a NAT64 would be one.
func translated(addr netip.Addr) netip.Addr {
	if !addr.Is6() {
		return addr
	}
	b := addr.As16()
	if [12]byte(b[:12]) != [12]byte{0, 0x64, 0xff, 0x9b} {
		return addr
	}
	return netip.AddrFrom4([4]byte(b[12:]))
}

// Trusts reports whether the peer at remoteAddr, as in an [http.Request], is a trusted
// proxy.
func (r *Resolver) Trusts(remoteAddr string) bool { return r.trusts(0, parseNode(remoteAddr)) }

// Reading returns a Resolver that reads only the field source where r reads [Either]. It
// is for peers that write that field and pass the other one on from clients.
func (r *Resolver) Reading(source Source) *Resolver {
	out := *r
	if r.source == Either {
		out.source = source
	}
	return &out
}
