package rls

import (
	"context"
	"fmt"

	// Register the messages of the service, for reflection.
	_ "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/door/grpcserver"
)

// Receive implements [grpcserver.Message].
func (c *call) Receive(wire mem.BufferSlice) { c.wire = wire }

// Send implements [grpcserver.Message]. The call is reused once gRPC has sent it.
func (c *call) Send() mem.BufferSlice {
	c.tidy() // the answer may live longer than its request
	if c.conn != nil {
		c.owes = cap(c.out)
		c.conn.Owes(c.owes)
	}
	return mem.BufferSlice{mem.NewBuffer(&c.out, (*pool)(c))}
}

// pool is a call as the mem.BufferPool to which its answer is returned.
type pool call

// Get implements mem.BufferPool. gRPC never calls it.
func (p *pool) Get(length int) *[]byte {
	b := make([]byte, length)
	return &b
}

// Put implements mem.BufferPool. gRPC calls it once the answer is sent.
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

// HealthName is the name that clients of envoyproxy/ratelimit use in health checks,
// besides the service's name.
const HealthName = "ratelimit"

// Description returns the service's description for gRPC. Its messages are *call, not
// generated types.
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

// reply returns c, which is released once gRPC has sent it, or releases it and returns
// the error.
func (c *call) reply(err error) (any, error) {
	if err != nil {
		c.release()
		return nil, err
	}
	return c, nil
}

// Rough memory costs of a request in bytes. A descriptor may take two bytes on the
// wire; decoded, with its verdicts, it takes far more.
const (
	descriptorCost = 2 << 10
	byteCost       = 16
	jsonByteCost   = 48
)

// load waits for memory and decodes the request. A decoding error is in c.wrong; the
// returned error is about the wait.
func (c *call) load(ctx context.Context) (err error) {
	if c.took, err = grpcserver.Enter(ctx, &c.service.room, weigh(grpcserver.Whole(c.wire), c.wire.Len())); err != nil {
		return err
	}
	c.wrong = c.request.decode(c.wire.Materialize()) // one copy, which the strings point into
	c.unwire()
	return nil
}

// unwire releases the encoded request.
func (c *call) unwire() {
	c.wire.Free()
	c.wire = nil
}

// weigh estimates the memory of a RateLimitRequest; see [grpcserver.Reader].
func weigh(data []byte, size int) int64 {
	descriptors := min(size/2, maxDescriptors)
	if data != nil {
		descriptors = described.Elements(data, 2, maxDescriptors)
	}
	return int64(descriptors)*descriptorCost + int64(size)*byteCost
}
