package grpcserver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec of the other services
	"google.golang.org/grpc/mem"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/transport/h2bound"
)

// Message is a request and its answer that a service reads and writes itself, without
// protobuf.
type Message interface {
	// Receive takes the bytes of the request and must free them.
	Receive(wire mem.BufferSlice)
	// Send returns the bytes of the answer.
	Send() mem.BufferSlice
}

// Reader reads the messages of a service that reports invalid messages itself. gRPC
// would report them as the server's mistake.
type Reader interface {
	// Weigh estimates how many bytes the call takes while it is answered, besides the
	// message. If the message is in pieces, data is nil and only its size is known.
	Weigh(data []byte, size int) int64
	// ReadWire reads the bytes of the message, which it may keep.
	ReadWire(data []byte)
}

// codec lets services read and write their own messages, and leaves those of health
// and reflection to protobuf.
type codec struct{ others encoding.CodecV2 }

// Name implements encoding.CodecV2.
func (c codec) Name() string { return "proto" }

// Unmarshal implements encoding.CodecV2. It only passes on the bytes of Message and
// unread: the service reports invalid messages as the caller's mistake, and a large
// message waits for its turn before it is decoded.
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

// DefaultPatience is how long a large request waits for its turn: at most half the
// time allowed for its answer.
const DefaultPatience = 5 * time.Second

// Enter waits until room has space for a request that takes about n bytes.
func Enter(ctx context.Context, room *answer.Room, n int64) (taken int64, err error) {
	taken, err = room.Enter(ctx, n, DefaultPatience)
	if errors.Is(err, answer.ErrManyLarge) {
		err = grpcstatus.Error(codes.Unavailable, err.Error())
	} else if err != nil {
		err = grpcstatus.FromContextError(err).Err()
	}
	return taken, err
}

// Whole returns the bytes of a message in one piece, valid until it is freed; nil if
// it is in several.
func Whole(wire mem.BufferSlice) []byte {
	if len(wire) == 1 {
		return wire[0].ReadOnlyData()
	}
	return nil
}

// The sizes of answer buffers, in bytes.
const (
	MinOut  = 1280     // gRPC only returns buffers of more than 1024
	maxKept = 64 << 10 // the largest buffer kept for the next answer
)

// unread is a message that is not decoded yet.
type unread struct{ wire mem.BufferSlice }

// owed is an answer whose bytes count until they have been sent.
type owed struct {
	conn *h2bound.Conn
	of   *sync.Pool
	out  []byte
}

// owing makes large calls of a service wait for their turn, and counts their answers.
func owing(from *grpc.ServiceDesc, room *answer.Room) *grpc.ServiceDesc {
	d := *from
	d.Methods = make([]grpc.MethodDesc, len(from.Methods))
	answers := &sync.Pool{}
	answers.New = func() any { return &owed{of: answers, out: make([]byte, 0, MinOut)} }
	for i, m := range from.Methods {
		d.Methods[i] = grpc.MethodDesc{MethodName: m.MethodName, Handler: func(server any, ctx context.Context, read func(any) error, around grpc.UnaryServerInterceptor) (any, error) {
			taken := int64(0)
			defer func() { room.Leave(taken) }()
			out, err := m.Handler(server, ctx, func(v any) (err error) {
				r, ok := v.(Reader)
				if !ok {
					return read(v)
				}
				taken, err = readInto(ctx, r, read, room)
				return err
			}, around)
			message, ok := out.(proto.Message)
			if err != nil || !ok {
				return out, err
			}
			o, _ := answers.Get().(*owed)
			if err := o.marshal(message, ConnOf(ctx)); err != nil {
				return nil, err
			}
			return o, nil
		}}
	}
	return &d
}

// readInto reads a message into r once room has space for it, and returns how much it
// took.
func readInto(ctx context.Context, r Reader, read func(any) error, room *answer.Room) (taken int64, err error) {
	var u unread
	defer func() { u.wire.Free() }()
	if err := read(&u); err != nil {
		return 0, err
	}
	if taken, err = Enter(ctx, room, r.Weigh(Whole(u.wire), u.wire.Len())); err != nil {
		return 0, err
	}
	r.ReadWire(u.wire.Materialize())
	return taken, nil
}

// marshal encodes message into o.
func (o *owed) marshal(message proto.Message, conn *h2bound.Conn) error {
	out, err := proto.MarshalOptions{}.MarshalAppend(o.out[:0], message)
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	o.out, o.conn = out, conn
	return nil
}

// buffer returns the encoded answer, which counts until gRPC has sent it.
func (o *owed) buffer() mem.Buffer {
	if o.conn != nil {
		o.conn.Owes(cap(o.out))
	}
	return mem.NewBuffer(&o.out, o)
}

// Get implements mem.BufferPool. It is never called: gRPC takes no buffers from here.
func (*owed) Get(length int) *[]byte {
	b := make([]byte, length)
	return &b
}

// Put implements mem.BufferPool. gRPC calls it when the answer has been sent.
func (o *owed) Put(*[]byte) {
	if o.conn != nil {
		o.conn.Owes(-cap(o.out))
	}
	if cap(o.out) > maxKept {
		o.out = make([]byte, 0, MinOut)
	}
	o.conn = nil
	o.of.Put(o)
}
