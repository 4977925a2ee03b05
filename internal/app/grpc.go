package app

import (
	"fmt"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/grpcapi"
	"github.com/headgate/headgate/internal/door/rls"
	"github.com/headgate/headgate/internal/overload"
)

// newRateLimit returns the rate limit service of Envoy, which the gRPC door and
// POST /json have in common.
func (a *App) newRateLimit() *rls.Service {
	c := a.options.Config
	o := rls.Options{
		Engine: a.engine, Clock: a.options.Clock, Logger: a.log, Clients: a.clients, Dialect: c.Headers,
		DynamicMetadata: c.Envoy.DynamicMetadata, Shadow: c.Envoy.ShadowMode,
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
		KeepaliveMin: c.KeepaliveMin, TLS: a.tlsOf(d.name), Logger: a.log.With("door", d.name),
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
