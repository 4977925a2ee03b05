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

	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/transport/h2bound"
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

// DefaultPatience is how long a large request waits for its turn: no more than
// half the time that its answer has.
const DefaultPatience = 5 * time.Second

// Enter waits until there is room for a request that takes about n bytes.
func Enter(ctx context.Context, room *answer.Room, n int64) (taken int64, err error) {
	taken, err = room.Enter(ctx, n, DefaultPatience)
	if errors.Is(err, answer.ErrManyLarge) {
		err = grpcstatus.Error(codes.Unavailable, err.Error())
	} else if err != nil {
		err = grpcstatus.FromContextError(err).Err()
	}
	return taken, err
}

// Whole returns a message that is in one piece, for as long as that is not freed;
// else nil.
func Whole(wire mem.BufferSlice) []byte {
	if len(wire) == 1 {
		return wire[0].ReadOnlyData()
	}
	return nil
}

// The sizes of buffers that answers are written into.
const (
	MinOut  = 1280     // from which size on gRPC hands buffers back: more than 1024
	maxKept = 64 << 10 // the most memory in bytes that an answer keeps for the next
)

// unread is a message that is not read yet.
type unread struct{ wire mem.BufferSlice }

// owed is an answer, whose bytes are counted until they have
// been sent.
type owed struct {
	conn *h2bound.Conn
	of   *sync.Pool
	out  []byte
}

// owing lets the calls of a service wait for their turn if they are large, and
// their answers be counted.
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

// readInto reads a message into r when there is room for it, and returns how much
// of that it took.
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

// marshal makes o the answer in the form of protobuf.
func (o *owed) marshal(message proto.Message, conn *h2bound.Conn) error {
	out, err := proto.MarshalOptions{}.MarshalAppend(o.out[:0], message)
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	o.out, o.conn = out, conn
	return nil
}

// buffer returns the answer, which counts until gRPC has sent it.
func (o *owed) buffer() mem.Buffer {
	if o.conn != nil {
		o.conn.Owes(cap(o.out))
	}
	return mem.NewBuffer(&o.out, o)
}

// Get is never called: gRPC takes no buffers from here.
func (*owed) Get(length int) *[]byte {
	b := make([]byte, length)
	return &b
}

// Put implements mem.BufferPool.
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
