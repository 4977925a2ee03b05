package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Store is a headgate.Store that measures the latency of another one. It is for stores
// behind a network, where reading a clock twice does not matter.
type Store struct {
	headgate.Store

	elapsed  func() time.Duration
	vec      *prometheus.HistogramVec
	ok, fail prometheus.Observer
}

// NewStore returns inner, measured by a monotonic clock.
func NewStore(inner headgate.Store, elapsed func() time.Duration) *Store {
	s := &Store{Store: inner, elapsed: elapsed}
	s.vec = prometheus.NewHistogramVec(Histogram(
		"headgate_store_duration_seconds", "Latency of calls to the shared store in seconds, by result.",
		[]float64{100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5},
	), []string{"result"})
	s.ok, s.fail = s.vec.WithLabelValues("ok"), s.vec.WithLabelValues("error")
	return s
}

// Collector returns a collector of the latencies for Prometheus.
func (s *Store) Collector() prometheus.Collector { return s.vec }

// Take implements headgate.Store.
func (s *Store) Take(ctx context.Context, op headgate.Op) (headgate.Decision, error) {
	began := s.elapsed()
	d, err := s.Store.Take(ctx, op)
	s.took(began, err)
	return d, err
}

// Do implements headgate.Store.
func (s *Store) Do(ctx context.Context, ops []headgate.Op, out []headgate.Decision, mode headgate.Mode) error {
	began := s.elapsed()
	err := s.Store.Do(ctx, ops, out, mode)
	s.took(began, err)
	return err
}

func (s *Store) took(began time.Duration, err error) {
	o := s.ok
	if err != nil {
		o = s.fail
	}
	o.Observe((s.elapsed() - began).Seconds())
}

// Pipeline implements store.Pipeliner. It is measured as one call, which failed if any
// group did.
func (s *Store) Pipeline(ctx context.Context, ops []headgate.Op, out []headgate.Decision, groups []store.Group) {
	began := s.elapsed()
	store.Pipeline(ctx, s.Store, ops, out, groups)
	var err error
	for i := range groups {
		if err = groups[i].Err; err != nil {
			break
		}
	}
	s.took(began, err)
}

// KeyTimes implements headgate.KeyTimer. It is not measured.
func (s *Store) KeyTimes(ctx context.Context, op headgate.Op) (headgate.KeyTimes, error) {
	return store.KeyTimes(ctx, s.Store, op)
}
