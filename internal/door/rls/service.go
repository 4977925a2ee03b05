// Package rls is the rate limit service of Envoy:
// envoy.service.ratelimit.v3.RateLimitService over gRPC, and POST /json, its
// form in JSON. Proxies that speak it (Envoy, Istio, Envoy Gateway, Contour,
// Emissary) use it in place of envoyproxy/ratelimit.
//
// Messages are read and written by hand, without allocating for each field, since a
// decision takes less time than protobuf's reflection. Tests compare them with package
// go-control-plane.
//
// The contract is in docs/grpc.md.
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
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/door/grpcserver"
	"github.com/headgate/headgate/internal/door/verdict"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/transport/h2bound"
)

// Options are what the service needs.
type Options struct {
	// Asker decides. With no Clock the store's decides. The header fields are
	// those that Envoy is to add.
	verdict.Asker
	Legacy          *LegacyHeaders // the names of three more fields, those of envoyproxy/ratelimit; nil for none
	DynamicMetadata bool           // sends dynamic metadata: the request, and the metadata of the rules that it passed
	Shadow          bool           // lets every request pass; the statuses say what would have been
	// MaxAnswering is how many bytes large requests may take together while they
	// are answered, those of /json and of the services beside this one included;
	// 0 is [answer.DefaultMostAnswering].
	MaxAnswering int64
}

// LegacyHeaders are the names of fields about the tightest limit.
type LegacyHeaders struct {
	Limit, Remaining, Reset string // how much per unit, how much is left, in how many seconds it is all back
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

// Answering bounds, and tells, what large requests take while they are answered.
func (s *Service) Answering() *answer.Room { return &s.room }

// call is the memory of one request, used again for the next.
type call struct {
	service  *Service
	request  request
	wrong    error // what is wrong with the request, if it could not be read
	parts    []engine.Part
	keys     []byte
	policies []answer.Policy
	text     []byte // of header fields
	out      []byte // a RateLimitResponse
	over     bool   // its overall code
	at       int64  // when it was decided; 0 if only the store knows
	compat   rules.Compat
	conn     *h2bound.Conn // what it came by; nil if it does not count
	owes     int           // of which, bytes of the answer
	wire     mem.BufferSlice
	took     int64 // of the service's room
}

const (
	maxKept = 64 << 10 // the most memory in bytes that a call keeps in any one place
)

// release lets go of the request and hands c back for the next one.
func (c *call) release() {
	c.tidy()
	c.conn = nil
	if cap(c.out) > maxKept {
		c.out = make([]byte, 0, grpcserver.MinOut)
	}
	c.service.calls.Put(c)
}

// tidy lets go of all but the answer.
func (c *call) tidy() {
	c.unwire()
	if cap(c.request.descriptors) > 64 {
		c.request = request{}
	}
	c.request.reset()
	for i := range c.request.descriptors[:cap(c.request.descriptors)] {
		if d := &c.request.descriptors[:cap(c.request.descriptors)][i]; cap(d.Told.Entries) > 64 {
			d.Told.Entries = nil
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

// answer decides about c.request and writes the response to c.out. The error is
// a status of gRPC.
func (s *Service) answer(ctx context.Context, c *call) (err error) {
	defer func() {
		// As net/http does: one request that goes wrong must not end the
		// process.
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
	v, err := s.options.Engine.DecideAll(ctx, engine.MultiQuery{
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

// The errors of a request that cannot be decided, in the words of
// envoyproxy/ratelimit.
var (
	errNoDomain      = errors.New("rate limit domain must not be empty")
	errNoDescriptors = errors.New("rate limit descriptor list must not be empty")
)

// prepare makes c.parts of c.request.
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
			p.Kind = headgate.Refund
		case p.Cost == 0:
			// To know whether anything is left, ask for the least.
			p.Kind, p.Cost = headgate.Peek, 1
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

// Of returns the service of a process, which its doors over gRPC and HTTP have in
// common.
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

// collector tells what large requests take.
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

// Dump returns the handler of GET /rlconfig: the active rules, one a line, as
// domain, name, limit and what is special about them, for people.
func Dump(current func() *rules.Ruleset) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		var b []byte
		for _, r := range current().Rules() {
			b = appendRule(b, r)
		}
		_, _ = w.Write(b) // a caller that went away has no use for the error
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
