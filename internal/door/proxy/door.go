package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/adaptive"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/internal/transport/overload"
)

// The names of the claims on file descriptors: for connections to the upstream, and to
// a backend in this process.
const (
	toUpstream = "upstream"
	toBackend  = "backend"
)

const name = "proxy"

// queuedShare is the memory for bodies that are being received for a queue, as a
// multiple of a door's memory. A client may use a quarter of it: enough for the largest
// body.
const queuedShare = 4

// unreadAnswer is the approximate memory of an answer that the client does not read, in
// bytes: the buffers and goroutines of both connections, with some garbage.
const unreadAnswer = 160 << 10

// Door returns the reverse proxy. If backend is not nil, this process serves it in
// place of the upstream.
func Door(backend http.Handler) door.Door {
	return door.Door{
		Section: section(), ALPN: []string{"h2", "http/1.1"}, Sends: true, CheckFiles: checkFiles, Domain: domain, Answer: unreadAnswer,
		Claims: func(c *config.Config) []door.Claim {
			claims := []door.Claim{{Name: toUpstream, Chosen: config.Own[Settings](c).MaxUpstream}}
			if backend != nil {
				claims = append(claims, door.Claim{Name: toBackend})
			}
			return claims
		},
		Open: func(p *door.Process) (door.Server, error) { return open(p, backend) },
	}
}

// served is the proxy and its server.
type served struct {
	*Proxy
	*door.HTTP
	process *door.Process
	to      *upstream
}

func open(p *door.Process, backend http.Handler) (door.Server, error) {
	to, err := newUpstream(p, backend)
	if err != nil {
		return nil, err
	}
	c := config.Own[Settings](p.Config)
	o := door.HTTPOptions{Endless: true, Cleartext: true, PassOptions: true}
	underscores, _ := ParseUnderscores(c.Underscores)
	limits, whileTold := c.limits()
	limiter := c.Adaptive.limiter(to.url)
	if limiter != nil {
		door.Once(p, func() *adaptive.Limiter {
			p.Register(AdaptiveMetrics(limiter))
			return limiter
		})
	}
	s := &served{process: p, to: to, Proxy: New(Options{
		Adaptive: limiter, Headroom: c.Adaptive.Headroom, Shed: p.Metrics.Unplaced, Asker: p.Asker, Domain: p.Domain, Candidate: p.Candidate, Upstream: to.url, Tokens: p.Tokens, TrustedProxies: p.Config.TrustedProxies,
		Transport: p.Telemetry.Transport(to.ways), TellTime: p.Config.DecisionTime, MaxWaiting: c.MaxWaiting, Paths: c.Paths,
		StatusPath: p.Config.Queue.StatusPath, BodyTimeout: cmp.Or(p.Timeouts.Body, c.BodyTimeout),
		ReadTimeout: o.Timeouts(p).Read, Abandoned: c.Abandoned, Underscores: underscores, TrustedOnly: c.TrustedOnly, NoVia: c.NoVia,
		CORS: c.CORS, LimitsPath: limits, LimitsAsked: p.LimitsAsked(), LimitsWhileTold: whileTold, Bodies: membound.New(membound.Options{Most: queuedShare * p.MaxRoom, Client: p.Counted}),
	})}
	if limiter != nil {
		p.Metrics.SetUpstream(s.state)
	}
	o.Handler = p.Telemetry.Handler(door.Shedding(p.Sheds, overload.Request, s.Proxy), route)
	if s.HTTP, err = door.NewHTTP(p, o); err != nil {
		_ = to.close(context.Background()) // never used
		return nil, err
	}
	return s, nil
}

// route names no routes: the paths are the upstream's.
func route(string) (name string, traced bool) { return "", true }

// Drain implements [door.Drainer].
func (s *served) Drain(context.Context) {
	s.Proxy.Drain(s.process.Clock().Add(s.process.Config.ShutdownTimeout))
}

// Shutdown implements [door.Server]. The connections to the upstream are closed last.
func (s *served) Shutdown(ctx context.Context) error {
	err := s.HTTP.Shutdown(ctx)
	s.Finish(ctx)
	return errors.Join(err, s.to.close(ctx))
}

// Descriptors implements [door.DescriptorUser].
func (s *served) Descriptors() int64 { return s.to.open.Load() }

// Reload implements [door.Reloader].
func (s *served) Reload() {
	if s.to.certificates != nil {
		_ = s.to.certificates.Reload() // logs its error and keeps the old certificates
	}
}

// domain returns the domain whose rules the proxy enforces: the configured one, or the
// only one. It must have the classes that adaptive knows.
func domain(c *config.Config, rs *rules.Ruleset) (string, error) {
	s := config.Own[Settings](c)
	domain, err := s.domain(rs)
	if err == nil && len(rs.Domains()) > 0 {
		_, err = classes(s.Adaptive.Headroom, rs.Priorities(domain))
	}
	return domain, err
}

func (s *Settings) domain(rs *rules.Ruleset) (string, error) {
	domain, domains := s.Domain, rs.Domains()
	switch {
	case len(domains) == 0:
		return domain, nil
	case domain == "" && len(domains) > 1:
		return "", &config.SourceError{
			Source: "proxy.domain", Message: fmt.Sprintf("not set, but the rules have several domains: %q", domains),
			Hint: "set it to the domain that the proxy enforces",
		}
	case domain == "":
		return domains[0], nil
	case !slices.Contains(domains, domain):
		return "", &config.SourceError{
			Source: "proxy.domain", Message: fmt.Sprintf("no rule has the domain %q", domain),
			Hint: fmt.Sprintf("the rules have %q", domains),
		}
	}
	return domain, nil
}
