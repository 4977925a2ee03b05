// Package described holds requests that callers describe by attributes, as opposed to
// HTTP requests that a door receives itself.
package described

import (
	"net/netip"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
)

// Limits on what a caller may send; they are the same at every door.
const (
	MaxChecks     = 1000      // checks in a batch
	MaxAttributes = 128       // attributes of a request
	MaxCost       = 1<<53 - 1 // largest cost, which every JSON library represents exactly
)

// Request is a rules.Request made of attributes. The zero value has none. It can be
// reused after [Request.Reset].
type Request struct {
	attributes []attribute
	address    netip.Addr
}

type attribute struct {
	rules.Attribute
	value string
}

var _ rules.TrustedRequest = (*Request)(nil)

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

// Trusted implements rules.TrustedRequest: who names the attributes is believed.
func (r *Request) Trusted() bool { return true }

// Len returns how many attributes there are.
func (r *Request) Len() int { return len(r.attributes) }

// Add adds an attribute that was not added before. The address of a client is grouped by
// clients. If the value is invalid, Add adds nothing and returns what the value must be:
// an address must not have a zone, and a path must not be a URL, which no rule would
// match. Otherwise it returns "".
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
		return "must start with /"
	}
	r.attributes = append(r.attributes, attribute{a, value})
	return ""
}

// Grow reserves memory for n more attributes.
func (r *Request) Grow(n int) { r.attributes = slices.Grow(r.attributes, n) }

// Reset removes all attributes and releases their text. It keeps memory for up to most
// attributes.
func (r *Request) Reset(most int) {
	clear(r.attributes)
	r.attributes, r.address = r.attributes[:0], netip.Addr{}
	if cap(r.attributes) > most {
		r.attributes = nil
	}
}

// Ordered is the rules.OrderedRequest of an Envoy descriptor. Its header fields are not believed:
// Envoy copies them from the client. Unlike rules.Descriptor it groups the address of the client.
// Told must not change after the first call of a method.
type Ordered struct {
	Given   rules.Descriptor
	Clients *client.Resolver // groups addresses; required

	address      netip.Addr
	addressKnown bool
}

var _ rules.OrderedRequest = (*Ordered)(nil)

// Descriptor implements rules.OrderedRequest.
func (o *Ordered) Descriptor() []rules.Entry { return o.Given.Entries }

// Attribute implements rules.Request.
func (o *Ordered) Attribute(a rules.Attribute) (value string, ok bool) {
	if a.Kind != rules.ClientIP {
		return o.Given.Attribute(a)
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
		o.address, o.addressKnown = o.Given.ClientIP().Unmap().WithZone(""), true
	}
	return o.address
}

// Elements returns how many times a protobuf message has a field, up to most. It stops at
// the first error.
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
