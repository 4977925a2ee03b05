// Package rls is the rate limit service of Envoy:
// envoy.service.ratelimit.v3.RateLimitService over gRPC, and POST /json, its
// form in JSON. Proxies that speak it (Envoy, Istio, Envoy Gateway, Contour,
// Emissary) use it in place of envoyproxy/ratelimit.
//
// Messages are read and written by hand, without allocating for each field: protobuf's
// reflection would take longer than the decision. Tests compare with package
// go-control-plane.
//
// The contract is in docs/connect/grpc.md.
package rls

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/grpcserver"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/transport/h2bound"
	"github.com/headgate/headgate/store"
)

// Options configures a [Service].
type Options struct {
	// Asker decides. Without a Clock, the store's clock is used. Dialect chooses the
	// header fields that Envoy adds.
	admission.Asker
	Legacy          *LegacyHeaders // names of the fields of envoyproxy/ratelimit; nil for none
	DynamicMetadata bool           // sends the request and the metadata of rules that allowed it
	Shadow          bool           // allows every request; statuses show what would have been decided
	// MaxAnswering limits the memory in bytes of all large requests in progress,
	// including those of /json and of other services on the same server; 0 means
	// [answer.DefaultMostAnswering].
	MaxAnswering int64
}

// LegacyHeaders are the names of the header fields about the tightest limit.
type LegacyHeaders struct {
	Limit, Remaining, Reset string // limit per unit, what remains, seconds until the limit is full again
}

// Service answers rate limit requests, over gRPC and as JSON.
type Service struct {
	options Options
	calls   sync.Pool // of *call
	room    answer.Room
}

// New returns the service.
func New(options Options) *Service {
	s := &Service{options: options}
	s.room.Most = options.MaxAnswering
	s.calls.New = func() any { return &call{service: s, out: make([]byte, 0, grpcserver.MinOut)} }
	return s
}

// Answering returns the memory limit for large requests in progress.
func (s *Service) Answering() *answer.Room { return &s.room }

// call is the state of one request. It is reused.
type call struct {
	service  *Service
	request  request
	wrong    error // why the request could not be decoded
	parts    []engine.Part
	keys     []byte
	policies []answer.Policy
	text     []byte // of header fields
	out      []byte // a RateLimitResponse
	over     bool   // its overall code
	at       int64  // time of the decision; 0 if only the store knows it
	compat   rules.Compat
	conn     *h2bound.Conn // its connection; nil if memory is not counted there
	owes     int           // bytes of the answer that are counted for conn
	wire     mem.BufferSlice
	took     int64 // from the service's room
}

const (
	maxKept = 64 << 10 // limit in bytes for each buffer that a call keeps for reuse
)

// release drops the request and returns c to the pool.
func (c *call) release() {
	c.tidy()
	c.conn = nil
	if cap(c.out) > maxKept {
		c.out = make([]byte, 0, grpcserver.MinOut)
	}
	c.service.calls.Put(c)
}

// tidy drops everything but the answer.
func (c *call) tidy() {
	c.unwire()
	if cap(c.request.descriptors) > 64 {
		c.request = request{}
	}
	c.request.reset()
	for i := range c.request.descriptors[:cap(c.request.descriptors)] {
		if d := &c.request.descriptors[:cap(c.request.descriptors)][i]; cap(d.Given.Entries) > 64 {
			d.Given.Entries = nil
		}
	}
	clear(c.parts)
	clear(c.policies)
	c.parts, c.policies, c.keys, c.wrong = c.parts[:0], c.policies[:0], c.keys[:0], nil
	if cap(c.parts) > 64 {
		c.parts, c.policies = nil, nil
	}
	if cap(c.keys) > maxKept {
		c.keys = nil
	}
	if cap(c.text) > maxKept {
		c.text = nil
	}
	c.service.room.Leave(c.took)
	c.took = 0
}

// answer decides about c.request and writes the response to c.out. The error is a gRPC
// status.
func (s *Service) answer(ctx context.Context, c *call) (err error) {
	defer func() {
		// As in net/http, a panic in one request must not end the process.
		if p := recover(); p != nil {
			s.options.Logger.ErrorContext(ctx, "rate limit request failed", "panic", p)
			err = grpcstatus.Error(codes.Internal, "internal error")
		}
	}()
	if err := c.prepare(); err != nil {
		return grpcstatus.Error(codes.InvalidArgument, err.Error())
	}
	c.at = 0
	if s.options.Clock != nil {
		c.at = s.options.Clock().UnixMicro()
	}
	v, err := s.options.Engine.Decide(ctx, engine.Query{
		Domain: c.request.domain, Parts: c.parts, At: c.at,
		Observe: s.options.Shadow, Door: engine.DoorGRPC,
	})
	defer v.Release()
	s.options.Report(ctx, c.request.domain, err)
	if err != nil && !errors.Is(err, headgate.ErrUnavailable) {
		return grpcstatus.Error(codes.Internal, err.Error())
	}
	c.encode(&v)
	return nil
}

// Errors about invalid requests, with the texts of envoyproxy/ratelimit.
var (
	errNoDomain      = errors.New("rate limit domain must not be empty")
	errNoDescriptors = errors.New("rate limit descriptor list must not be empty")
)

// prepare fills c.parts from c.request.
func (c *call) prepare() error {
	r := &c.request
	switch {
	case c.wrong != nil:
		return fmt.Errorf("the request could not be read: %w", c.wrong)
	case r.domain == "":
		return errNoDomain
	case len(r.descriptors) == 0:
		return errNoDescriptors
	}
	c.compat = c.service.options.Engine.Rules().CompatOf(r.domain)
	for i := range r.descriptors {
		d := &r.descriptors[i]
		d.Clients = c.service.options.Clients
		p := engine.Part{Request: d, Cost: int64(max(r.hits, 1))}
		if d.hasHits {
			p.Cost = int64(min(d.hits, math.MaxInt64))
		}
		switch {
		case d.negative:
			p.Kind = store.KindRefund
		case p.Cost == 0:
			// Cost 0 passes if a cost of 1 would.
			p.Kind, p.Cost = store.KindPeek, 1
		}
		if d.override.there {
			rule, err := d.override.rule(r.domain, c.compat)
			if err != nil {
				return fmt.Errorf("descriptor %d: %w", i, err)
			}
			p.Rule, p.Key = rule, string(d.appendKey(c.keys[:0], r.domain, c.compat))
		}
		c.parts = append(c.parts, p)
	}
	return nil
}

// Of returns the service of a process. Its gRPC and HTTP doors share it.
func Of(p *door.Process) *Service {
	return door.Once(p, func() *Service {
		c := p.Config
		o := Options{
			Asker: p.Asker, DynamicMetadata: c.Envoy.DynamicMetadata, Shadow: c.Envoy.ShadowMode, MaxAnswering: p.MaxRoom,
		}
		if c.Envoy.LegacyHeaders {
			o.Legacy = &LegacyHeaders{
				Limit: c.Envoy.LimitHeader, Remaining: c.Envoy.RemainingHeader, Reset: c.Envoy.ResetHeader,
			}
		}
		s := New(o)
		p.Register(s.collector())
		return s
	})
}

// collector reports the memory of large requests.
func (s *Service) collector() prometheus.Collector {
	c := &metrics.Asked{}
	answering := c.Gauge("headgate_grpc_answering_bytes", "Estimated memory used by large gRPC and POST /json requests in progress, in bytes.")
	refused := c.Counter("headgate_grpc_refused_total", "Large gRPC and POST /json requests refused because no memory became free within 5 seconds, or whose caller left first.")
	c.Ask(func(out chan<- prometheus.Metric) {
		answering(out, float64(s.room.Held()))
		refused(out, float64(s.room.Refused()))
	})
	return c
}

// Dump returns the handler of GET /rlconfig, a list of the active rules for people. Each
// line has the domain, name, limit and special options of a rule.
func Dump(current func() *rules.Ruleset) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		var b []byte
		for _, r := range current().Rules() {
			b = appendRule(b, r)
		}
		_, _ = w.Write(b) // an error means that the caller has left
	})
}

// appendRule appends the line of a rule.
func appendRule(b []byte, r *rules.Rule) []byte {
	b = fmt.Appendf(b, "%s.%s: %s", r.Domain, r.Name, r.Limit)
	if r.LimitName != "" && r.LimitName != r.Name {
		b = fmt.Appendf(b, ", name: %s", r.LimitName)
	}
	for _, name := range r.Replaces {
		b = fmt.Appendf(b, ", replaces: %s", name)
	}
	if r.Mode == rules.Shadow {
		b = append(b, ", shadow_mode: true"...)
	}
	if r.QuotaMode {
		b = append(b, ", quota_mode: true"...)
	}
	return fmt.Appendf(b, " (%s)\n", r.Position())
}
