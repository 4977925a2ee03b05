package rls

import (
	"net/netip"

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
	told     rules.Descriptor
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
	clear(d.told.Entries) // let go of the texts
	*d = descriptor{told: rules.Descriptor{Entries: d.told.Entries[:0]}}
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

var _ rules.OrderedRequest = (*descriptor)(nil)

// Descriptor implements rules.OrderedRequest.
func (d *descriptor) Descriptor() []rules.Entry { return d.told.Entries }

// Attribute implements rules.Request. Unlike that of a rules.Descriptor the
// client's address is grouped by its prefix, as for every door.
func (d *descriptor) Attribute(a rules.Attribute) (value string, ok bool) {
	if a.Kind != rules.ClientIP {
		return d.told.Attribute(a)
	}
	address := d.ClientIP()
	if !address.IsValid() {
		return "", false
	}
	return d.clients.Group(address), true
}

// ClientIP implements rules.Request.
func (d *descriptor) ClientIP() netip.Addr {
	if !d.addressKnown {
		d.address, d.addressKnown = d.told.ClientIP().Unmap().WithZone(""), true
	}
	return d.address
}
