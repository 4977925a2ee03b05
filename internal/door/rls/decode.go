package rls

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/rules"
)

// Limits on a request. Envoy sends a handful.
const (
	maxDescriptors = 1024
	maxEntries     = 8192 // of all descriptors
)

var (
	errText   = errors.New("a string is not valid UTF-8")
	errNumber = errors.New("invalid field number")
)

// field is one field of an encoded message: a number for scalars, bytes for strings and
// messages.
type field struct {
	number protowire.Number
	kind   protowire.Type
	scalar uint64
	bytes  []byte
}

// next splits b after its first field.
func next(b []byte) (f field, rest []byte, err error) {
	number, kind, n := protowire.ConsumeTag(b)
	if n < 0 {
		return f, nil, protowire.ParseError(n)
	}
	if number > protowire.MaxValidNumber {
		return f, nil, errNumber
	}
	f.number, f.kind, b = number, kind, b[n:]
	switch kind {
	case protowire.VarintType:
		f.scalar, n = protowire.ConsumeVarint(b)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(b)
	case protowire.Fixed32Type, protowire.Fixed64Type, protowire.StartGroupType, protowire.EndGroupType:
		n = protowire.ConsumeFieldValue(number, kind, b)
	default:
		n = protowire.ConsumeFieldValue(number, kind, b)
	}
	if n < 0 {
		return f, nil, protowire.ParseError(n)
	}
	return f, b[n:], nil
}

// isMessage and isScalar report whether f has this number and type. As in protobuf, a
// field of another type is unknown and skipped.
func (f *field) isMessage(number protowire.Number) bool {
	return f.number == number && f.kind == protowire.BytesType
}

func (f *field) isScalar(number protowire.Number) bool {
	return f.number == number && f.kind == protowire.VarintType
}

// text returns the value of a string field, without a copy.
func (f *field) text() (string, error) {
	if !utf8.Valid(f.bytes) {
		return "", errText
	}
	return f.raw(), nil
}

// raw is text for a value that may be any bytes.
func (f *field) raw() string {
	return unsafe.String(unsafe.SliceData(f.bytes), len(f.bytes)) //nolint:gosec // string(f.bytes); they are never written to, see decode
}

// decode reads a RateLimitRequest into r, which must be empty. b must not change while
// r is used: strings of r point into it.
func (r *request) decode(b []byte) error {
	entries := 0
	for len(b) > 0 {
		var f field
		var err error
		if f, b, err = next(b); err != nil {
			return err
		}
		switch {
		case f.isMessage(1):
			if r.domain, err = f.text(); err != nil {
				return err
			}
		case f.isMessage(2):
			if len(r.descriptors) == maxDescriptors {
				return fmt.Errorf("more than %d descriptors", maxDescriptors)
			}
			d := r.add()
			if err := d.decode(f.bytes); err != nil {
				return err
			}
			if entries += len(d.Given.Entries); entries > maxEntries {
				return fmt.Errorf("more than %d entries", maxEntries)
			}
		case f.isScalar(3):
			r.hits = uint32(f.scalar & math.MaxUint32)
		}
	}
	return nil
}

// decode reads a RateLimitDescriptor.
func (d *descriptor) decode(b []byte) error {
	for len(b) > 0 {
		var f field
		var err error
		if f, b, err = next(b); err != nil {
			return err
		}
		switch {
		case f.isMessage(1):
			if len(d.Given.Entries) == maxEntries {
				return fmt.Errorf("more than %d entries", maxEntries)
			}
			e, err := decodeEntry(f.bytes)
			if err != nil {
				return err
			}
			d.Given.Entries = append(d.Given.Entries, e)
		case f.isMessage(2):
			d.override.there = true
			if err := d.override.decode(f.bytes); err != nil {
				return err
			}
		case f.isMessage(3):
			d.hasHits = true
			if d.hits, err = wrapped(f.bytes, d.hits); err != nil {
				return err
			}
		case f.isScalar(4):
			d.negative = f.scalar != 0
		}
	}
	return nil
}

// decodeEntry reads a RateLimitDescriptor.Entry.
func decodeEntry(b []byte) (e rules.Entry, err error) {
	for len(b) > 0 && err == nil {
		var f field
		if f, b, err = next(b); err != nil {
			break
		}
		switch {
		case f.isMessage(1):
			e.Key, err = f.text()
		case f.isMessage(2):
			// Envoy copies client input. If an invalid string were an error, Envoy would let
			// the request pass, and the client would evade all its limits.
			e.Value = f.raw()
		}
	}
	return e, err
}

// decode reads a RateLimitOverride.
func (o *override) decode(b []byte) error {
	for len(b) > 0 {
		var f field
		var err error
		if f, b, err = next(b); err != nil {
			return err
		}
		switch {
		case f.isScalar(1):
			o.requests = uint32(f.scalar & math.MaxUint32)
		case f.isScalar(2):
			o.unit = int32(uint32(f.scalar & math.MaxUint32))
		case f.isMessage(3):
			o.hasMultiplier = true
			var v uint64
			if v, err = wrapped(f.bytes, uint64(o.multiplier)); err != nil {
				return err
			}
			o.multiplier = uint32(v & math.MaxUint32)
		}
	}
	return nil
}

// wrapped reads a wrapper such as google.protobuf.UInt64Value. v is its earlier value:
// a field that occurs twice is merged.
func wrapped(b []byte, v uint64) (uint64, error) {
	for len(b) > 0 {
		var f field
		var err error
		if f, b, err = next(b); err != nil {
			return 0, err
		}
		if f.isScalar(1) {
			v = f.scalar
		}
	}
	return v, nil
}

// request is a RateLimitRequest. Its strings are valid until it is reset.
type request struct {
	domain      string
	descriptors []descriptor
	hits        uint32
}

// descriptor is one descriptor of a request. It is the rules.Request to match rules
// against.
type descriptor struct {
	described.Ordered

	override override
	// hits replaces the request's if hasHits is set.
	hits     uint64
	hasHits  bool
	negative bool // refunds the hits
}

// override is a limit in a descriptor.
type override struct {
	there         bool
	requests      uint32
	unit          int32
	hasMultiplier bool
	multiplier    uint32
}

// reset empties r and keeps its memory.
func (r *request) reset() {
	for i := range r.descriptors {
		r.descriptors[i].reset()
	}
	*r = request{descriptors: r.descriptors[:0]}
}

func (d *descriptor) reset() {
	entries := d.Given.Entries
	clear(entries) // drop references to the strings
	*d = descriptor{}
	d.Given.Entries = entries[:0]
}

// add appends an empty descriptor to r and returns it.
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
