// Package grpcserver serves gRPC services with limits on the memory of requests and
// answers, their duration, and the age of connections. It adds the health and reflection
// services.
package grpcserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/transport/h2bound"
	"github.com/headgate/headgate/internal/transport/membound"
)

// DefaultMaxStreams is the default of Options.MaxStreams.
const DefaultMaxStreams = 250

// Options are the services and limits of a server. A limit of zero means its default.
type Options struct {
	Services    []Service
	HealthNames []string     // further service names that health checks may use
	Room        *answer.Room // bounds large requests of Services that are not Own; required if there are any
	TLS         *tls.Config  // encrypts connections, if not nil
	MaxMessage  int          // the largest request in bytes
	MaxStreams  uint32       // how many requests a connection may have in flight
	// MaxBuffers is how many bytes the requests and answers of all connections may
	// take, at least two messages of the largest size. If that is not enough, the
	// connection that has held the most for the longest is closed.
	MaxBuffers int64
	// ReadTimeout is how long a request may take to arrive completely, WriteTimeout
	// how long it may then take until the client has read the answer. Connections
	// that exceed them are closed. Health and reflection streams may last; a
	// connection may have a few.
	ReadTimeout, WriteTimeout time.Duration
	Logger                    *slog.Logger // logs connections closed for these reasons; optional
	// MaxConnectionAge is the age at which a connection is asked to close, give or
	// take a tenth, so that load is balanced again. MaxConnectionAgeGrace is how long
	// that may take. A negative age means no limit.
	MaxConnectionAge, MaxConnectionAgeGrace time.Duration
	// MaxConnectionIdle closes connections without a request for this long; 0 means never.
	MaxConnectionIdle time.Duration
	HandshakeTimeout  time.Duration // how long a connection may take to be set up
	KeepaliveMin      time.Duration // the shortest interval of pings; more frequent ones close the connection
	// Interceptor, if not nil, wraps every call. It does not see the messages of Own services.
	Interceptor grpc.UnaryServerInterceptor
	// Busy reports whether to refuse calls other than health and Spared methods; nil means never.
	Busy   func() bool
	Spared func(method string) bool
}

// Service is a gRPC service of the server.
type Service struct {
	Description *grpc.ServiceDesc
	Server      any // passed to its handlers
	// Own says that its messages are [Message]s, which wait for memory and count it themselves.
	Own bool
}

// Server serves services over gRPC. Make it with [New].
type Server struct {
	grpc   *grpc.Server
	health *health.Server
	bound  *h2bound.Bound
	names  []string // of the services with a health status
}

// New returns a server. Call [Server.Shutdown] when done with it, even if it never
// served.
func New(o Options) *Server {
	o.MaxMessage = cmp.Or(o.MaxMessage, 1<<20)
	o.MaxStreams = cmp.Or(o.MaxStreams, DefaultMaxStreams)
	o.MaxBuffers = cmp.Or(o.MaxBuffers, 64<<20)
	o.MaxBuffers = max(o.MaxBuffers, 2*int64(o.MaxMessage))
	o.ReadTimeout = cmp.Or(o.ReadTimeout, 10*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.MaxConnectionAge = cmp.Or(o.MaxConnectionAge, 24*time.Hour)
	o.MaxConnectionAgeGrace = cmp.Or(o.MaxConnectionAgeGrace, time.Hour)
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, 10*time.Second)
	o.KeepaliveMin = cmp.Or(o.KeepaliveMin, 10*time.Second)
	age := keepalive.ServerParameters{
		// Detects vanished peers: load balancers may forget idle connections.
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
		options = append(options, grpc.InTapHandle(shedding(o.Busy, o.Spared)))
	}
	if o.Interceptor != nil {
		options = append(options, grpc.UnaryInterceptor(o.Interceptor))
	}
	server := &Server{grpc: grpc.NewServer(options...), health: health.NewServer(), bound: bound}
	server.names = append([]string{""}, o.HealthNames...)
	for _, s := range o.Services {
		d := s.Description
		if !s.Own {
			d = owing(d, o.Room)
		}
		server.grpc.RegisterService(d, s.Server)
		server.names = append(server.names, d.ServiceName)
	}
	healthpb.RegisterHealthServer(server.grpc, server.health)
	server.SetServing(true)
	reflection.Register(server.grpc)
	return server
}

// shedding refuses calls while the process is busy, before reading them.
func shedding(busy func() bool, spared func(method string) bool) tap.ServerInHandle {
	return func(ctx context.Context, info *tap.Info) (context.Context, error) {
		method := info.FullMethodName
		if busy() && !strings.HasPrefix(method, "/grpc.health.") && (spared == nil || !spared(method)) {
			return nil, grpcstatus.Error(codes.Unavailable, "overloaded: this server is short of memory")
		}
		return ctx, nil
	}
}

// Bounded returns statistics of the memory that all connections hold.
func (s *Server) Bounded() h2bound.Stats { return s.bound.Stats() }

// SetServing sets whether the health service reports the server as healthy.
func (s *Server) SetServing(yes bool) { //nolint:revive // the state itself, not a choice of what to do
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if yes {
		state = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range s.names {
		s.health.SetServingStatus(name, state)
	}
}

// Serve accepts connections on l until Shutdown, then returns nil.
func (s *Server) Serve(l net.Listener) error {
	if err := s.grpc.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Shutdown reports the server as unhealthy, accepts no more requests and lets those in
// flight finish until ctx is done. It returns the error of ctx if it ended any.
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
