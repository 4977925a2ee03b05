package rls

import "github.com/headgate/headgate/internal/request/described"

// request is a RateLimitRequest. Its texts are good as long as it is.
type request struct {
	domain      string
	descriptors []descriptor
	hits        uint32
}

// descriptor is one of a request's descriptors, and the rules.Request that its
// rules are matched against.
type descriptor struct {
	described.Ordered

	override override
	// hits, if hasHits, takes the place of the request's.
	hits    uint64
	hasHits bool
	// negative gives the hits back.
	negative bool
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
	entries := d.Told.Entries
	clear(entries) // let go of the texts
	*d = descriptor{}
	d.Told.Entries = entries[:0]
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
