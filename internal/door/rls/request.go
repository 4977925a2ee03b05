package rls

import (
	"net/netip"
	"strings"

	"github.com/headgate/headgate/internal/client"
	"github.com/headgate/headgate/rules"
)

// request is a RateLimitRequest. Its texts are good as long as it is.
type request struct {
	domain      string
	descriptors []descriptor
	hits        uint32
}

// descriptor is one of a request's descriptors, and the rules.Request that its
// rules are matched against.
type descriptor struct {
	entries  []entry
	override override
	// hits, if hasHits, takes the place of the request's.
	hits    uint64
	hasHits bool
	// negative gives the hits back.
	negative bool

	clients      *client.Resolver
	address      netip.Addr
	addressKnown bool
}

type entry struct{ key, value string }

// override is a limit that came with the descriptor.
type override struct {
	there         bool
	requests      uint32
	unit          int32
	hasMultiplier bool
	multiplier    uint32
}

// reset makes r an empty request, keeping its memory.
func (r *request) reset() {
	for i := range r.descriptors {
		r.descriptors[i].reset()
	}
	*r = request{descriptors: r.descriptors[:0]}
}

func (d *descriptor) reset() {
	clear(d.entries) // let go of the texts
	*d = descriptor{entries: d.entries[:0]}
}

// add returns a fresh descriptor at the end of r.
func (r *request) add() *descriptor {
	if n := len(r.descriptors); n < cap(r.descriptors) {
		r.descriptors = r.descriptors[:n+1]
	} else {
		r.descriptors = append(r.descriptors, descriptor{})
	}
	d := &r.descriptors[len(r.descriptors)-1]
	d.reset()
	return d
}

// Entries returns the number of entries, for rules that match them in their
// order.
func (d *descriptor) Entries() int { return len(d.entries) }

// Entry returns the entry at i.
func (d *descriptor) Entry(i int) (key, value string) {
	return d.entries[i].key, d.entries[i].value
}

// Attribute implements rules.Request. Entries have the names that rules use:
// the value of method is that of an entry with the key method, that of
// header:X-Api-Key one with this key. Of several with one key the first
// counts. The client's address is also that of Envoy's remote_address.
func (d *descriptor) Attribute(a rules.Attribute) (value string, ok bool) {
	switch a.Kind {
	case rules.Entry:
		return d.find("", a.Name)
	case rules.Header:
		return d.findHeader(a.Name)
	case rules.Query:
		return d.find("query:", a.Name)
	case rules.Cookie:
		return d.find("cookie:", a.Name)
	case rules.JWT:
		return d.find("jwt:", a.Name)
	case rules.ClientIP:
		address := d.ClientIP()
		if !address.IsValid() {
			return "", false
		}
		return d.clients.Group(address), true
	case rules.Method, rules.Path, rules.Host:
	}
	return d.find("", a.Kind.String())
}

func (d *descriptor) find(prefix, name string) (string, bool) {
	for i := range d.entries {
		if key := d.entries[i].key; len(key) == len(prefix)+len(name) && key[:len(prefix)] == prefix && key[len(prefix):] == name {
			return d.entries[i].value, true
		}
	}
	return "", false
}

func (d *descriptor) findHeader(name string) (string, bool) {
	for i := range d.entries {
		if key, ok := strings.CutPrefix(d.entries[i].key, "header:"); ok && strings.EqualFold(key, name) {
			return d.entries[i].value, true
		}
	}
	return "", false
}

// ClientIP implements rules.Request.
func (d *descriptor) ClientIP() netip.Addr {
	if d.addressKnown {
		return d.address
	}
	d.addressKnown = true
	text, ok := d.find("", "client_ip")
	if !ok {
		text, ok = d.find("", "remote_address")
	}
	if !ok {
		return d.address
	}
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		d.address = address.Unmap()
	}
	return d.address
}
