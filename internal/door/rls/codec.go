package rls

import (
	"context"
	"fmt"

	// Register the messages of the service, for reflection.
	_ "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/headgate/headgate/internal/door/grpcserver"
	"github.com/headgate/headgate/internal/request/described"
)

// Receive implements [grpcserver.Message].
func (c *call) Receive(wire mem.BufferSlice) { c.wire = wire }

// Send implements [grpcserver.Message]. The memory of a call is free again when
// gRPC has sent it.
func (c *call) Send() mem.BufferSlice {
	c.tidy() // the answer may be kept for longer than its request
	if c.conn != nil {
		c.owes = cap(c.out)
		c.conn.Owes(c.owes)
	}
	return mem.BufferSlice{mem.NewBuffer(&c.out, (*pool)(c))}
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

// HealthName is by which name, besides that of the service, clients of
// envoyproxy/ratelimit ask for its health.
const HealthName = "ratelimit"

// Description returns what gRPC has to know of the service, whose messages are
// its own.
func Description() *grpc.ServiceDesc {
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
	c.conn = grpcserver.ConnOf(ctx)
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

// What a request takes while it is answered, about. A descriptor of two bytes on
// the wire becomes one that rules are matched against, with their verdicts.
const (
	descriptorCost = 2 << 10
	byteCost       = 16
	jsonByteCost   = 48
)

// load reads the request off the wire when there is room for it. What is wrong
// with it is in c.wrong, and the error that of waiting.
func (c *call) load(ctx context.Context) (err error) {
	if c.took, err = grpcserver.Enter(ctx, &c.service.room, weigh(grpcserver.Whole(c.wire), c.wire.Len())); err != nil {
		return err
	}
	c.wrong = c.request.decode(c.wire.Materialize()) // a copy of its own, for texts to point into
	c.unwire()
	return nil
}

// unwire lets go of what came on the wire.
func (c *call) unwire() {
	c.wire.Free()
	c.wire = nil
}

// weigh tells what a RateLimitRequest takes; see [grpcserver.Reader].
func weigh(data []byte, size int) int64 {
	descriptors := min(size/2, maxDescriptors)
	if data != nil {
		descriptors = described.Elements(data, 2, maxDescriptors)
	}
	return int64(descriptors)*descriptorCost + int64(size)*byteCost
}
