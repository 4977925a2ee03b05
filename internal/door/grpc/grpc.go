// Package grpc is the gRPC door: Envoy's rate limit service, and the API as
// headgate.v1.Limiter, on one server.
//
// The contract is in docs/connect/grpc.md.
package grpc

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/grpcapi"
	"github.com/headgate/headgate/internal/door/grpcserver"
	"github.com/headgate/headgate/internal/door/rls"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/internal/transport/oneport"
)

const name = "grpc"

// Door returns the door. It requires the API's tokens, but not for Envoy's service.
func Door() door.Door {
	return door.Door{
		Section: section(), Speaks: oneport.GRPC, ALPN: []string{"h2"}, Tokens: true, Policy: netbound.ByRead,
		Open: func(p *door.Process) (door.Server, error) { return open(p), nil },
	}
}

// server serves the door and has its metrics.
type server struct {
	*grpcserver.Server
	metrics.Asked
	bound *netbound.Listener // limits its connections; nil means no limit
	idle  time.Duration      // how long a stopping server waits for silent connections
}

func open(p *door.Process) *server {
	c := config.Own[Settings](p.Config)
	limiter := grpcapi.New(grpcapi.Options{Asker: p.Asker, Tokens: p.APITokens(), Failures: p.Failures, Inline: p.Inline(), LimitsAsked: p.LimitsAsked()})
	envoy := rls.Of(p)
	s := &server{bound: p.Bound, idle: p.Config.ShutdownIdle, Server: grpcserver.New(grpcserver.Options{
		Services: []grpcserver.Service{
			{Description: rls.Description(), Server: envoy, Own: true},
			{Description: limiter.Description(), Server: limiter},
		},
		HealthNames: []string{rls.HealthName}, Room: envoy.Answering(), Spared: grpcapi.Spared,
		MaxMessage: int(c.MaxMessage), MaxConnectionAge: c.MaxConnectionAge, MaxConnectionAgeGrace: c.MaxConnectionAgeGrace,
		MaxStreams: uint32(c.MaxStreams), MaxConnectionIdle: c.IdleTimeout,
		KeepaliveMin: c.KeepaliveMin, MaxBuffers: p.MaxRoom, TLS: p.TLS, Logger: p.Logger.With("door", p.Name),
		Interceptor: p.Telemetry.Interceptor(), Busy: p.Busy,
	})}
	held := s.Gauge("headgate_grpc_stream_bytes", "Memory held by gRPC requests being received and responses not yet read by their clients, in bytes.")
	closed := s.Counter("headgate_grpc_closed_total", "gRPC connections closed by the server, by reason: slow (a request was not received or a response not read in time) or memory (all connections together held too much, and this one the most).", "reason")
	s.Ask(func(out chan<- prometheus.Metric) {
		b := s.Bounded()
		held(out, float64(b.Held))
		closed(out, float64(b.Slow), "slow")
		closed(out, float64(b.Evicted), "memory")
	})
	return s
}

// Shutdown implements [door.Server]. Connections that have sent nothing are closed after a
// while: the server would wait for their handshake.
func (s *server) Shutdown(ctx context.Context) error {
	if s.bound != nil {
		defer time.AfterFunc(s.idle, s.bound.HangUp).Stop()
	}
	return s.Server.Shutdown(ctx)
}

// DefaultAddress is the default listening address of gRPC.
const DefaultAddress = "127.0.0.1:8081"

// Settings are the settings of this door only. 0 means the default.
type Settings struct {
	// MaxMessage is the largest request in bytes, MaxStreams how many requests a
	// connection may have in flight.
	MaxMessage, MaxStreams int64
	// MaxConnectionAge is the age at which a connection is asked to close.
	// MaxConnectionAgeGrace is how long that may take.
	MaxConnectionAge, MaxConnectionAgeGrace time.Duration
	IdleTimeout                             time.Duration // how long a connection may have no request; 0 means no limit
	KeepaliveMin                            time.Duration // the shortest interval of pings; more frequent ones close the connection
}

// section declares the settings.
func section() config.Section {
	return config.Section{
		Name: name, Means: "[gRPC](connect/grpc.md): the API, and Envoy's rate limit service", Default: DefaultAddress, Sockets: true, Shares: true,
		Own: func() any { return new(Settings) },
		Settings: []config.Setting{
			config.Count("grpc.max_streams", func(s *Settings) *int64 { return &s.MaxStreams }, 1_000_000).Means("250", "concurrent requests on a connection"),
			config.Period("grpc.idle_timeout", func(s *Settings) *time.Duration { return &s.IdleTimeout }).Means("never", "time without a request"),
			config.Period("grpc.keepalive_min", func(s *Settings) *time.Duration { return &s.KeepaliveMin }).Means("`10s`", "clients that ping more often are disconnected"),
			config.MessageSize("grpc.max_message", func(s *Settings) *int64 { return &s.MaxMessage }).Means("`1MiB`", "largest request"),
			config.Duration("grpc.max_connection_age", func(s *Settings) *time.Duration { return &s.MaxConnectionAge }, time.Second).Means("`24h`", "when connections are asked to close, for load balancing"),
			config.Duration("grpc.max_connection_age_grace", func(s *Settings) *time.Duration { return &s.MaxConnectionAgeGrace }, time.Second).Means("`1h`", "how long they then have"),
		},
	}
}
