package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/store"
)

// Store is a store.Store that measures the latency of another one. It is for stores
// behind a network, where reading a clock twice does not matter.
type Store struct {
	store.Store

	elapsed  func() time.Duration
	vec      *prometheus.HistogramVec
	ok, fail prometheus.Observer
}

// NewStore returns inner, measured by a monotonic clock.
func NewStore(inner store.Store, elapsed func() time.Duration) *Store {
	s := &Store{Store: inner, elapsed: elapsed}
	s.vec = prometheus.NewHistogramVec(Histogram(
		"headgate_store_duration_seconds", "Latency of calls to the shared store in seconds, by result: ok or error.",
		[]float64{100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5},
	), []string{"result"})
	s.ok, s.fail = s.vec.WithLabelValues("ok"), s.vec.WithLabelValues("error")
	return s
}

// Collector returns a collector of the latencies for Prometheus.
func (s *Store) Collector() prometheus.Collector { return s.vec }

// Do implements store.Store. A call failed if any group did. Reading times is not
// measured.
func (s *Store) Do(ctx context.Context, b *store.Batch) {
	if len(b.Ops) == 0 || b.Ops[0].Kind == store.KindTimes {
		s.Store.Do(ctx, b)
		return
	}
	began := s.elapsed()
	s.Store.Do(ctx, b)
	o := s.ok
	if b.Err() != nil {
		o = s.fail
	}
	o.Observe((s.elapsed() - began).Seconds())
}
