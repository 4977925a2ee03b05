package rls

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// Codes of RateLimitResponse.
const (
	codeOK        = 1
	codeOverLimit = 2
)

// status is a DescriptorStatus.
type status struct {
	code      uint64
	limit     currentLimit
	hasLimit  bool
	remaining uint32
	reset     int64 // seconds
}

// currentLimit is a RateLimitResponse.RateLimit.
type currentLimit struct {
	name       string
	requests   uint32
	unit       uint64
	multiplier uint32
}

// open starts an embedded message with one byte for its length, and returns where its
// content starts.
func open(b []byte, number protowire.Number) (out []byte, start int) {
	b = protowire.AppendTag(b, number, protowire.BytesType)
	b = append(b, 0)
	return b, len(b)
}

// shut ends the message whose content starts at start.
func shut(b []byte, start int) []byte {
	size := len(b) - start
	if size < 0x80 {
		b[start-1] = byte(size)
		return b
	}
	more := protowire.SizeVarint(uint64(size)) - 1
	for range more {
		b = append(b, 0)
	}
	copy(b[start+more:], b[start:start+size])
	protowire.AppendVarint(b[:start-1], uint64(size))
	return b
}

// appendScalar appends a field unless it is 0.
func appendScalar(b []byte, number protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), v)
}

// appendText appends a field unless it is empty.
func appendText[T string | []byte](b []byte, number protowire.Number, v T) []byte {
	if len(v) == 0 {
		return b
	}
	b = protowire.AppendTag(b, number, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(v)))
	return append(b, v...)
}

// append appends s to the statuses of a RateLimitResponse.
func (s *status) append(b []byte) []byte {
	b, start := open(b, 2)
	b = appendScalar(b, 1, s.code)
	if s.hasLimit {
		b = s.limit.append(b)
	}
	b = appendScalar(b, 3, uint64(s.remaining))
	if s.reset > 0 {
		var inner int
		b, inner = open(b, 4)
		b = shut(appendScalar(b, 1, uint64(s.reset)), inner)
	}
	return shut(b, start)
}

func (l *currentLimit) append(b []byte) []byte {
	b, start := open(b, 2)
	b = appendScalar(b, 1, uint64(l.requests))
	b = appendScalar(b, 2, l.unit)
	b = appendText(b, 3, l.name)
	if l.multiplier > 1 {
		var inner int
		b, inner = open(b, 4)
		b = shut(appendScalar(b, 1, uint64(l.multiplier)), inner)
	}
	return shut(b, start)
}

// appendHeader appends one of response_headers_to_add.
func appendHeader[T string | []byte](b []byte, name string, value T) []byte {
	return appendHeaderTo(b, 3, name, value)
}

// appendHeaderTo appends a header field to the list with a field number;
// request_headers_to_add is 4.
func appendHeaderTo[T string | []byte](b []byte, list protowire.Number, name string, value T) []byte {
	b, start := open(b, list)
	b = appendText(b, 1, name)
	b = appendText(b, 2, value)
	return shut(b, start)
}
