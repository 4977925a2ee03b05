package grpclimit

import (
	"context"
	"slices"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/checks"
)

// UnaryServer returns an interceptor that limits the calls of a server, counted by
// [ByPeer] unless an option says otherwise.
//
// Like all interceptors here, it panics if its arguments are invalid; see [Validate].
func UnaryServer(limiter *headgate.Limiter, limit headgate.Limit, options ...Option) grpc.UnaryServerInterceptor {
	g := newGate("UnaryServer", limiter, limit, ByPeer(), options)
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		held, err := g.admit(&Call{Context: ctx, Method: info.FullMethod, Message: request})
		if err != nil {
			return nil, err
		}
		defer held.end()
		ctx, _ = checks.WithMarks(ctx, held.marks)
		reply, err := handler(ctx, request)
		held.answered(err)
		return reply, err
	}
}

// StreamServer is UnaryServer for streams. A stream counts as one call, however many
// messages it has.
func StreamServer(limiter *headgate.Limiter, limit headgate.Limit, options ...Option) grpc.StreamServerInterceptor {
	g := newGate("StreamServer", limiter, limit, ByPeer(), options)
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		held, err := g.admit(&Call{Context: stream.Context(), Method: info.FullMethod})
		if err != nil {
			return err
		}
		defer held.end()
		if ctx, is := checks.WithMarks(stream.Context(), held.marks); is {
			stream = &marked{stream, ctx}
		}
		err = handler(server, stream)
		held.answered(err)
		return err
	}
}

// UnaryClient returns an interceptor that keeps a client within a limit. Calls over it
// wait if [Wait] allows it; otherwise they fail before they are sent, as if the server
// had refused them. All calls are counted together unless an option says otherwise.
func UnaryClient(limiter *headgate.Limiter, limit headgate.Limit, options ...Option) grpc.UnaryClientInterceptor {
	g := newGate("UnaryClient", limiter, limit, All(), options)
	g.client = true
	return func(ctx context.Context, method string, request, reply any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		held, err := g.admit(&Call{Context: ctx, Method: method, Message: request})
		if err != nil {
			return err
		}
		defer held.end()
		ctx, _ = checks.WithMarks(ctx, held.marks)
		err = invoke(ctx, method, request, reply, c, o...)
		held.answered(err)
		return err
	}
}

// StreamClient is UnaryClient for streams. An interceptor that opens a stream again has to come
// before it: the call ends with the first attempt.
func StreamClient(limiter *headgate.Limiter, limit headgate.Limit, options ...Option) grpc.StreamClientInterceptor {
	g := newGate("StreamClient", limiter, limit, All(), options)
	g.client = true
	return func(ctx context.Context, d *grpc.StreamDesc, c *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
		held, err := g.admit(&Call{Context: ctx, Method: method})
		if err != nil {
			return nil, err
		}
		if len(held.leases) > 0 || held.charge != nil {
			// The call ends when the stream does.
			o = append(slices.Clip(o), grpc.OnFinish(func(err error) {
				held.answered(err)
				held.end()
			}))
		}
		ctx, _ = checks.WithMarks(ctx, held.marks)
		stream, err := open(ctx, d, c, method, o...)
		if err != nil {
			held.answered(err)
			held.end()
		}
		return stream, err
	}
}
