package rules

import (
	"net/netip"
	"strings"
)

// Entry is one step of a descriptor, such as remote_address, 198.51.100.7.
type Entry struct{ Key, Value string }

// Descriptor is a request that consists of the ordered entries of one Envoy
// descriptor. As attributes, for rules of Headgate's own form, the entries are
// known by their keys: an entry is the attribute whose name in rules is its
// key, so that path, method, host and header:X-Plan are those attributes. An
// entry remote_address is the client's address, unless there is a client_ip.
// Of entries with the same key the first counts.
type Descriptor struct{ Entries []Entry }

// OrderedRequest is a Request that has the entries of a descriptor too. Their
// order matters to rules of the descriptor form, which take no notice of its
// attributes.
type OrderedRequest interface {
	Request
	// Descriptor returns the entries, the outermost first.
	Descriptor() []Entry
}

// Descriptor implements [OrderedRequest].
func (d *Descriptor) Descriptor() []Entry { return d.Entries }

// Attribute implements [Request].
func (d *Descriptor) Attribute(a Attribute) (value string, ok bool) {
	for i := range d.Entries {
		if e := &d.Entries[i]; a.isCalled(e.Key) {
			return e.Value, true
		}
	}
	if a.Kind == ClientIP {
		return d.Attribute(Attribute{Kind: Other, Name: RemoteAddress})
	}
	return "", false
}

// RemoteAddress is the key under which Envoy sends the client's address.
const RemoteAddress = "remote_address"

// ClientIP implements [Request].
func (d *Descriptor) ClientIP() netip.Addr {
	text, ok := d.Attribute(Attribute{Kind: ClientIP})
	if !ok {
		return netip.Addr{}
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return address
}

// isCalled reports whether rules write a as key. Case does not count in the
// names of headers.
func (a Attribute) isCalled(key string) bool {
	switch a.Kind {
	case Other:
		return a.Name == key
	case Header, Query, Cookie, JWT:
		prefix := a.Kind.String()
		if len(key) != len(prefix)+1+len(a.Name) || key[len(prefix)] != ':' || !strings.HasPrefix(key, prefix) {
			return false
		}
		name := key[len(prefix)+1:]
		return name == a.Name || a.Kind == Header && strings.EqualFold(name, a.Name)
	case Method, Path, Host, ClientIP:
	}
	return a.Kind.String() == key
}
