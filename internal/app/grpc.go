package app

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/grpcapi"
	"github.com/headgate/headgate/internal/door/rls"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/transport/overload"
)

// newRateLimit returns the rate limit service of Envoy, which the gRPC door and
// POST /json have in common.
func (a *App) newRateLimit() *rls.Service {
	c := a.options.Config
	o := rls.Options{
		Engine: a.engine, Clock: a.options.Clock, Logger: a.log, Clients: a.clients, Dialect: c.Headers,
		DynamicMetadata: c.Envoy.DynamicMetadata, Shadow: c.Envoy.ShadowMode,
		MaxAnswering: a.roomOfADoor(), Bodies: a.capacity.rooms.api(),
	}
	if c.Envoy.LegacyHeaders {
		o.Legacy = &rls.LegacyHeaders{
			Limit: c.Envoy.LimitHeader, Remaining: c.Envoy.RemainingHeader, Reset: c.Envoy.ResetHeader,
		}
	}
	return rls.New(o)
}

// newLimiter returns the API as the gRPC door has it. It asks for the same tokens
// as over HTTP.
func (a *App) newLimiter() *grpcapi.Service {
	return grpcapi.New(grpcapi.Options{
		Engine: a.engine, Clock: a.options.Clock, Logger: a.log, Clients: a.clients,
		Dialect: a.options.Config.Headers, Tokens: a.apiTokens(), Failures: a.wrong(DoorGRPC),
	})
}

// serveGRPC answers at d in the background.
func (a *App) serveGRPC(d *door) error {
	c := &a.options.Config.GRPC
	o := rls.ServerOptions{
		MaxMessage: int(c.MaxMessage), MaxConnectionAge: c.MaxConnectionAge, MaxConnectionAgeGrace: c.MaxConnectionAgeGrace,
		MaxStreams: uint32(c.MaxStreams), HandshakeTimeout: c.HandshakeTimeout, MaxConnectionIdle: c.IdleTimeout,
		KeepaliveMin: c.KeepaliveMin, MaxBuffers: a.roomOfADoor(), TLS: a.tlsOf(d.name), Logger: a.log.With("door", d.name),
		Interceptor: a.telemetry.Interceptor(), Busy: func() bool { return a.sheds(overload.Request) },
	}
	limiter := a.newLimiter()
	o.Beside = []rls.Beside{{Description: limiter.Description(), Service: limiter}}
	d.grpc = rls.NewServer(a.rateLimit, o)
	a.log.Info("listening", "door", d.name, "address", d.listener.Addr().String(), "tls", a.isEncrypted(d.name))
	go func() {
		defer close(d.done)
		if err := d.grpc.Serve(d.listener); err != nil {
			a.failures <- fmt.Errorf("%s: %w", d.name, err)
		}
	}()
	return nil
}

// grpcMetrics tells what requests over gRPC take, and what was refused for it.
// POST /json is answered by the same service.
func (a *App) grpcMetrics(c *metrics.Asked) {
	held := c.Gauge("headgate_grpc_stream_bytes", "Bytes of requests that are arriving and answers that are not read yet, all connections of gRPC together.")
	closed := c.Counter("headgate_grpc_closed_total", "Connections of gRPC that were closed: slow, as a request did not arrive or an answer was not read in time; memory, as all together kept too much and this one the most.", "reason")
	answering := c.Gauge("headgate_grpc_answering_bytes", "Bytes that large requests of gRPC and POST /json take while they are answered, estimated.")
	refused := c.Counter("headgate_grpc_refused_total", "Large requests of gRPC and POST /json that were refused, as others took all of the memory for them for 5 s, or whose caller went away before.")
	c.Ask(func(out chan<- prometheus.Metric) {
		for _, d := range a.doors {
			if d.grpc == nil {
				continue
			}
			s := d.grpc.Bounded()
			held(out, float64(s.Held))
			closed(out, float64(s.Slow), "slow")
			closed(out, float64(s.Evicted), "memory")
		}
		if a.rateLimit != nil {
			answering(out, float64(a.rateLimit.Answering().Held()))
			refused(out, float64(a.rateLimit.Answering().Refused()))
		}
	})
}

// sayUnhealthy tells those who watch over gRPC that the process drains, or has
// no rules yet.
func (a *App) sayUnhealthy() { a.setServing(false) }

// sayHealthy takes that back, unless the process drains.
func (a *App) sayHealthy() {
	a.setServing(true)
	if a.draining.Load() { // perhaps since just now
		a.setServing(false)
	}
}

func (a *App) setServing(yes bool) {
	for _, d := range a.doors {
		if d.grpc != nil {
			d.grpc.SetServing(yes)
		}
	}
}

// isOpen reports whether a door is to be opened at an address.
func isOpen(address string) bool { return address != "" && address != config.Off }
