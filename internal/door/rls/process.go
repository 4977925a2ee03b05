package rls

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/observe/metrics"
)

// Of returns the service of a process, which its doors over gRPC and HTTP have in
// common.
func Of(p *door.Process) *Service {
	return door.Once(p, func() *Service {
		c := p.Config
		o := Options{
			Engine: p.Engine, Clock: p.Clock, Logger: p.Logger, Clients: p.Clients, Dialect: c.Headers,
			DynamicMetadata: c.Envoy.DynamicMetadata, Shadow: c.Envoy.ShadowMode, MaxAnswering: p.MaxRoom,
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
	answering := c.Gauge("headgate_grpc_answering_bytes", "Bytes that large requests of gRPC and POST /json take while they are answered, estimated.")
	refused := c.Counter("headgate_grpc_refused_total", "Large requests of gRPC and POST /json that were refused, as others took all of the memory for them for 5 s, or whose caller went away before.")
	c.Ask(func(out chan<- prometheus.Metric) {
		answering(out, float64(s.room.Held()))
		refused(out, float64(s.room.Refused()))
	})
	return c
}
