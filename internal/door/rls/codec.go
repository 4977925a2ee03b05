package rls

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec of the other services
	"google.golang.org/grpc/mem"
)

// Reader is what the calls of a service beside this one are read by, if it wants
// to tell itself what is wrong with a message: gRPC takes one that cannot be read
// for the server's mistake.
type Reader interface {
	// Weigh tells, about, how many bytes the call takes while it is answered,
	// besides the message. Of a message that is in pieces, data is nil, and only
	// its size is known.
	Weigh(data []byte, size int) int64
	// ReadWire takes the bytes of the message, which are its own.
	ReadWire(data []byte)
}

// codec reads and writes calls by hand, and leaves the messages of the other
// services of the same server, health and reflection, to protobuf.
type codec struct{ others encoding.CodecV2 }

// Name implements encoding.CodecV2.
func (c codec) Name() string { return "proto" }

// Unmarshal implements encoding.CodecV2. What is wrong with a rate limit
// request is for the service to tell, as its caller's mistake, and a large one
// waits for its turn before it is read.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch r := v.(type) {
	case *call:
		data.Ref()
		r.wire = data
	case *unread:
		data.Ref()
		r.wire = data
	default:
		return c.others.Unmarshal(data, v)
	}
	return nil
}

// Marshal implements encoding.CodecV2. The memory of a call is free again when
// gRPC has sent it.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch r := v.(type) {
	case *call:
		r.tidy() // the answer may be kept for longer than its request
		if r.conn != nil {
			r.owes = cap(r.out)
			r.conn.Owes(r.owes)
		}
		return mem.BufferSlice{mem.NewBuffer(&r.out, (*pool)(r))}, nil
	case *owed:
		return mem.BufferSlice{r.buffer()}, nil
	}
	return c.others.Marshal(v)
}

// pool is a call as the mem.BufferPool that its own answer goes back to.
type pool call

// Get is never called: gRPC takes no buffers from here.
func (p *pool) Get(length int) *[]byte {
	b := make([]byte, length)
	return &b
}

// Put implements mem.BufferPool.
func (p *pool) Put(*[]byte) {
	if p.conn != nil {
		p.conn.Owes(-p.owes)
	}
	(*call)(p).release()
}

const (
	serviceName = "envoy.service.ratelimit.v3.RateLimitService"
	methodName  = "ShouldRateLimit"
)

// description returns what gRPC has to know of the service.
func description() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: serviceName,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: methodName, Handler: shouldRateLimit}},
		Metadata:    "envoy/service/ratelimit/v3/rls.proto",
	}
}

// shouldRateLimit answers one request.
func shouldRateLimit(server any, ctx context.Context, read func(any) error, around grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // as grpc.MethodHandler wants it
	s, ok := server.(*Service)
	if !ok {
		return nil, fmt.Errorf("the service is %T", server)
	}
	c, _ := s.calls.Get().(*call)
	c.conn = connOf(ctx)
	err := read(c)
	if err == nil {
		err = c.load(ctx)
	}
	if err != nil {
		c.release()
		return nil, err
	}
	if around != nil {
		_, err := around(ctx, nil, &grpc.UnaryServerInfo{Server: server, FullMethod: "/" + serviceName + "/" + methodName},
			func(ctx context.Context, _ any) (any, error) { return nil, s.answer(ctx, c) })
		return c.reply(err)
	}
	return c.reply(s.answer(ctx, c))
}

// reply returns what gRPC sends: c, which is released when it has been sent, or
// the error.
func (c *call) reply(err error) (any, error) {
	if err != nil {
		c.release()
		return nil, err
	}
	return c, nil
}
