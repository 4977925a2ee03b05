// Package described has requests as callers describe them: name by name, rather
// than by a request of HTTP that the door itself has seen.
package described

import (
	"net/netip"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
)

// The bounds on what a caller may ask at once; every door has the same.
const (
	MaxChecks     = 1000      // the largest batch
	MaxAttributes = 128       // how many attributes one request may have
	MaxCost       = 1<<53 - 1 // the largest cost: what every JSON library can write exactly
)

// Request is a rules.Request made of attributes. The zero value has none. It is
// meant to be used again, by [Request.Reset].
type Request struct {
	attributes []attribute
	address    netip.Addr
}

type attribute struct {
	rules.Attribute
	value string
}

var _ rules.Request = (*Request)(nil)

// Attribute implements rules.Request.
func (r *Request) Attribute(a rules.Attribute) (value string, ok bool) {
	for i := range r.attributes {
		if r.attributes[i].Attribute == a {
			return r.attributes[i].value, true
		}
	}
	return "", false
}

// ClientIP implements rules.Request.
func (r *Request) ClientIP() netip.Addr { return r.address }

// Len returns how many attributes there are.
func (r *Request) Len() int { return len(r.attributes) }

// Add adds an attribute that is not there yet. The address of a client is
// grouped by clients, as every door does. What Add returns is empty, or says
// what the value must be, and then nothing was added: an address without a zone,
// a path and no URL, which no rule would ever match.
func (r *Request) Add(a rules.Attribute, value string, clients *client.Resolver) (must string) {
	switch {
	case a.Kind == rules.ClientIP:
		address, err := netip.ParseAddr(value)
		if err != nil || address.Zone() != "" {
			return "must be an IP address without port or zone"
		}
		r.address = address.Unmap()
		value = clients.Group(r.address)
	case a.Kind == rules.Path && value != "" && value[0] != '/' && value != "*": // of OPTIONS *
		return "must start with /: give the path alone, not the whole URL"
	}
	r.attributes = append(r.attributes, attribute{a, value})
	return ""
}

// Grow makes room for n attributes more.
func (r *Request) Grow(n int) { r.attributes = slices.Grow(r.attributes, n) }

// Reset takes all attributes away, lets go of their text and keeps the room of
// most of them at most.
func (r *Request) Reset(most int) {
	clear(r.attributes)
	r.attributes, r.address = r.attributes[:0], netip.Addr{}
	if cap(r.attributes) > most {
		r.attributes = nil
	}
}

// Ordered is the rules.OrderedRequest of one Envoy descriptor. Unlike that of a
// rules.Descriptor the client's address is grouped, as every door does. What it
// was told must not change once it has been asked.
type Ordered struct {
	Told    rules.Descriptor
	Clients *client.Resolver // groups addresses. Required.

	address      netip.Addr
	addressKnown bool
}

var _ rules.OrderedRequest = (*Ordered)(nil)

// Descriptor implements rules.OrderedRequest.
func (o *Ordered) Descriptor() []rules.Entry { return o.Told.Entries }

// Attribute implements rules.Request.
func (o *Ordered) Attribute(a rules.Attribute) (value string, ok bool) {
	if a.Kind != rules.ClientIP {
		return o.Told.Attribute(a)
	}
	address := o.ClientIP()
	if !address.IsValid() {
		return "", false
	}
	return o.Clients.Group(address), true
}

// ClientIP implements rules.Request.
func (o *Ordered) ClientIP() netip.Addr {
	if !o.addressKnown {
		o.address, o.addressKnown = o.Told.ClientIP().Unmap().WithZone(""), true
	}
	return o.address
}

// Elements returns how many messages a message of protobuf has in a field, or
// most if there are more. It looks no further than the first mistake.
func Elements(data []byte, field protowire.Number, most int) (n int) {
	for len(data) > 0 && n < most {
		number, kind, size := protowire.ConsumeTag(data)
		if size < 0 {
			return n
		}
		data = data[size:]
		if size = protowire.ConsumeFieldValue(number, kind, data); size < 0 {
			return n
		}
		data = data[size:]
		if number == field && kind == protowire.BytesType {
			n++
		}
	}
	return n
}
