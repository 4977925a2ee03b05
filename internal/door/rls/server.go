package rls

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
	"time"

	// Register the messages of the service, for reflection.
	_ "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/transport/h2bound"
	"github.com/headgate/headgate/internal/transport/membound"
)

// The defaults of ServerOptions.
const (
	DefaultMaxMessage            = 1 << 20
	DefaultMaxStreams            = 250
	DefaultMaxBuffers            = 64 << 20
	DefaultReadTimeout           = 10 * time.Second
	DefaultWriteTimeout          = 10 * time.Second
	DefaultMaxConnectionAge      = 24 * time.Hour
	DefaultMaxConnectionAgeGrace = time.Hour
	DefaultHandshakeTimeout      = 10 * time.Second
	DefaultKeepaliveMin          = 10 * time.Second
)

// HealthName is the service name, besides the empty one, whose health the
// server tells: that of envoyproxy/ratelimit.
const HealthName = "ratelimit"

// ServerOptions bound what callers may do. Zero values mean the defaults.
type ServerOptions struct {
	// TLS, if not nil, encrypts connections.
	TLS *tls.Config
	// MaxMessage is the size of the largest request in bytes.
	MaxMessage int
	// MaxStreams is how many requests a connection may have under way.
	MaxStreams uint32
	// MaxBuffers is how many bytes the requests and answers of all connections
	// may take: two messages of the largest size at least. Where that is not
	// enough, the connection is closed that has kept most for long.
	MaxBuffers int64
	// ReadTimeout is how long a request may take to arrive whole, WriteTimeout
	// how long it then may be until the client has read its answer. Connections
	// with one that takes longer are closed. Streams of health and reflection
	// last for as long as they like; a connection may have a few.
	ReadTimeout, WriteTimeout time.Duration
	// Logger hears of connections that are closed for that; nil for nobody.
	Logger *slog.Logger
	// MaxConnectionAge is after how long a connection is asked to close, give
	// or take a tenth, so that load balances anew; MaxConnectionAgeGrace is how
	// long it then may take. A negative age is no limit.
	MaxConnectionAge, MaxConnectionAgeGrace time.Duration
	// MaxConnectionIdle is after how long without a request a connection is
	// closed; 0 is never.
	MaxConnectionIdle time.Duration
	// HandshakeTimeout is how long a connection may take to be set up.
	HandshakeTimeout time.Duration
	// KeepaliveMin is how often a client may send pings; the connection of one
	// that sends more is closed.
	KeepaliveMin time.Duration
	// Interceptor, if not nil, is around every call. It sees neither the request
	// nor the response of the rate limit service.
	Interceptor grpc.UnaryServerInterceptor
	// Busy, if not nil, reports whether calls are to be refused; those that ask
	// for health never are.
	Busy func() bool
	// Beside are further services of the same server.
	Beside []Beside
}

// Beside is a service that is served beside that of Envoy.
type Beside struct {
	// Description is what gRPC has to know of it.
	Description *grpc.ServiceDesc
	// Service is what its handlers are given.
	Service any
}

// Server serves a Service over gRPC, and beside it the health and reflection
// services.
type Server struct {
	grpc   *grpc.Server
	health *health.Server
	bound  *h2bound.Bound
	names  []string // of the services whose health is told
}

// NewServer returns a server for s. Call [Server.Shutdown] when done with it,
// also if it has not served.
func NewServer(s *Service, o ServerOptions) *Server {
	orElse(&o.MaxMessage, DefaultMaxMessage)
	orElse(&o.MaxStreams, DefaultMaxStreams)
	orElse(&o.MaxBuffers, DefaultMaxBuffers)
	o.MaxBuffers = max(o.MaxBuffers, 2*int64(o.MaxMessage))
	orElse(&o.ReadTimeout, DefaultReadTimeout)
	orElse(&o.WriteTimeout, DefaultWriteTimeout)
	orElse(&o.Logger, slog.New(slog.DiscardHandler))
	orElse(&o.MaxConnectionAge, DefaultMaxConnectionAge)
	orElse(&o.MaxConnectionAgeGrace, DefaultMaxConnectionAgeGrace)
	orElse(&o.HandshakeTimeout, DefaultHandshakeTimeout)
	orElse(&o.KeepaliveMin, DefaultKeepaliveMin)
	age := keepalive.ServerParameters{
		// Peers that have vanished are noticed, as their load balancers may
		// forget idle connections.
		Time: time.Minute, Timeout: 20 * time.Second, MaxConnectionIdle: o.MaxConnectionIdle,
	}
	if o.MaxConnectionAge > 0 {
		age.MaxConnectionAge, age.MaxConnectionAgeGrace = o.MaxConnectionAge, o.MaxConnectionAgeGrace
	}
	bound := h2bound.New(h2bound.Options{
		Room: membound.New(membound.Options{Most: o.MaxBuffers}), ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, Logger: o.Logger,
	})
	options := []grpc.ServerOption{
		grpc.Creds(newBounding(bound, o.TLS)),
		grpc.StreamInterceptor(lasting),
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")}),
		grpc.MaxRecvMsgSize(o.MaxMessage),
		grpc.MaxConcurrentStreams(o.MaxStreams),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.ConnectionTimeout(o.HandshakeTimeout),
		grpc.KeepaliveParams(age),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: o.KeepaliveMin, PermitWithoutStream: true}),
	}
	if o.Busy != nil {
		options = append(options, grpc.InTapHandle(shedding(o.Busy)))
	}
	if o.Interceptor != nil {
		options = append(options, grpc.UnaryInterceptor(o.Interceptor))
	}
	server := &Server{grpc: grpc.NewServer(options...), health: health.NewServer(), bound: bound}
	server.grpc.RegisterService(description(), s)
	server.names = []string{"", HealthName, serviceName}
	for _, b := range o.Beside {
		server.grpc.RegisterService(owing(b.Description, s.Answering()), b.Service)
		server.names = append(server.names, b.Description.ServiceName)
	}
	healthpb.RegisterHealthServer(server.grpc, server.health)
	server.SetServing(true)
	reflection.Register(server.grpc)
	return server
}

// shedding refuses calls while the process is busy, before anything is read.
func shedding(busy func() bool) tap.ServerInHandle {
	return func(ctx context.Context, info *tap.Info) (context.Context, error) {
		if busy() && decides(info.FullMethodName) {
			return nil, grpcstatus.Error(codes.Unavailable, "overloaded: this process is short of memory")
		}
		return ctx, nil
	}
}

// decides reports whether a method takes something. What ends something, or keeps it,
// is answered always: it makes room, or saves who has a place from losing it.
func decides(method string) bool {
	switch method {
	case headgatev1.Limiter_Commit_FullMethodName, headgatev1.Limiter_Cancel_FullMethodName,
		headgatev1.Limiter_Release_FullMethodName, headgatev1.Limiter_Renew_FullMethodName:
		return false
	}
	return !strings.HasPrefix(method, "/grpc.health.")
}

// orElse sets *v to otherwise if it is zero.
func orElse[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

// Bounded tells what the streams of all connections keep.
func (s *Server) Bounded() h2bound.Stats { return s.bound.Stats() }

// SetServing says whether the health service reports that all is well.
func (s *Server) SetServing(yes bool) { //nolint:revive // the state itself, not a choice of what to do
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if yes {
		state = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range s.names {
		s.health.SetServingStatus(name, state)
	}
}

// Serve answers at l until Shutdown. It returns nil after that.
func (s *Server) Serve(l net.Listener) error {
	if err := s.grpc.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Shutdown says that it is unhealthy, takes no more requests and lets those
// under way finish until ctx is done, whose error it returns if that cut some
// off.
func (s *Server) Shutdown(ctx context.Context) error {
	s.health.Shutdown()
	defer s.bound.Stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.grpc.Stop() // ends GracefulStop too
		<-done
		return ctx.Err()
	}
}
