package grpcserver

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec of the other services
	"google.golang.org/grpc/mem"
)

// Message is a request, and its answer, that a service reads and writes itself
// rather than by protobuf.
type Message interface {
	// Receive takes the bytes of the request, which it has to free.
	Receive(wire mem.BufferSlice)
	// Send returns the bytes of the answer.
	Send() mem.BufferSlice
}

// Reader is what calls are read by, if their service wants to tell itself what is wrong with a message: gRPC takes one that cannot be read
// for the server's mistake.
type Reader interface {
	// Weigh tells, about, how many bytes the call takes while it is answered,
	// besides the message. Of a message that is in pieces, data is nil, and only
	// its size is known.
	Weigh(data []byte, size int) int64
	// ReadWire takes the bytes of the message, which are its own.
	ReadWire(data []byte)
}

// codec lets services read and write what they want to, and leaves the messages
// of others, health and reflection, to protobuf.
type codec struct{ others encoding.CodecV2 }

// Name implements encoding.CodecV2.
func (c codec) Name() string { return "proto" }

// Unmarshal implements encoding.CodecV2. What is wrong with a message is for the
// service to tell, as its caller's mistake, and a large one waits for its turn
// before it is read.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch r := v.(type) {
	case Message:
		data.Ref()
		r.Receive(data)
	case *unread:
		data.Ref()
		r.wire = data
	default:
		return c.others.Unmarshal(data, v)
	}
	return nil
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch r := v.(type) {
	case Message:
		return r.Send(), nil
	case *owed:
		return mem.BufferSlice{r.buffer()}, nil
	}
	return c.others.Marshal(v)
}
