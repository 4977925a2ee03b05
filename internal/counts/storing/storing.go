// Package storing opens the configured store and everything that belongs to it:
// snapshots of counts, the secret for tokens, and the table of bans and overrides. It
// also reports the store's health.
package storing

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/lifetime"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/telemetry"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/blocks"
	"github.com/headgate/headgate/store/failsafe"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/regions"
)

// Options configure a Store. All are required except Telemetry.
type Options struct {
	Config *config.Store
	// Memory is the configured memory limit of the process; 0 means none.
	Memory int64
	Clock  func() time.Time
	// Elapsed is a clock that never jumps, for durations.
	Elapsed   func() time.Duration
	Logger    *slog.Logger
	Telemetry *telemetry.Telemetry
	Register  func(...prometheus.Collector)
	Life      *lifetime.Lifetime // ends the store and its periodic tasks
}

// Store is where a process keeps its counts.
type Store struct {
	Options
	Counts store.Store // the store with its protective wrappers

	memory    *memory.Store   // Counts, or the fallback of Redis
	safe      *failsafe.Store // nil without Redis, as are the following fields
	blocks    *blocks.Store   // of limits with sync: blocks
	regions   *regions.Store  // nil without regions
	exchange  *redis.Exchange // between them
	followers []*control.Follower
	shared    *redis.Store
	homes     []*home // regions that count limits for this one
	secrets   *redis.Secrets

	health    health
	lastError atomic.Pointer[string] // from when the circuit last opened
	snapshot  snapshot
	table     *control.Local // of bans and overrides; nil with Redis
	token     tokenSecret
}

// Open opens the store and returns it with the options for an engine.
func Open(o Options) (*Store, []engine.Option, error) {
	s := &Store{Options: o}
	var about []engine.Option
	var err error
	if o.Config.Kind == config.InRedis {
		about, err = s.openRedis()
	} else {
		about, err = s.openMemory()
	}
	if err != nil {
		return nil, nil, err
	}
	s.Counts = o.Telemetry.Store(s.Counts, string(cmp.Or(o.Config.Kind, config.InMemory)))
	return s, about, nil
}

// Ready returns nil if the store counts, or the reason why it does not. It sends a
// request that writes nothing.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.health.trouble(); err != nil {
		return err // otherwise a request that writes nothing would succeed
	}
	_, err := store.Execute(ctx, s.Counts, store.Op{Scope: "readyz", Rule: headgate.PerSecond(1).Rule(), Cost: 1, Kind: store.KindPeek})
	return err
}

// Status is the state of a store, for operators.
type Status struct {
	Kind      string    `json:"kind"`            // memory or redis
	Healthy   bool      `json:"healthy"`         // false while the circuit is open
	Circuit   string    `json:"circuit"`         // closed or open
	Keys      int64     `json:"keys"`            // in memory: the keys of the memory store; with Redis, of the local fallback
	MaxKeys   int64     `json:"max_keys"`        // how many keys fit in memory
	Bytes     int64     `json:"bytes"`           // the memory that its keys take
	Evicted   int64     `json:"evicted"`         // keys evicted to make space
	DenyCache DenyCache `json:"deny_cache"`      // only used with Redis
	Error     string    `json:"error,omitempty"` // why Redis does not answer
}

// DenyCache is the size of the deny cache and how often it answered.
type DenyCache struct {
	Entries int64  `json:"entries"` // refused keys that it remembers
	Hits    uint64 `json:"hits"`    // refusals answered without Redis
}

// Status returns the current state of the store.
func (s *Store) Status() Status {
	m := s.memory.Stats()
	is := Status{
		Kind: "memory", Healthy: true, Circuit: failsafe.Closed.String(),
		Keys: m.Keys, MaxKeys: s.maxKeys(), Bytes: m.Bytes, Evicted: m.Evicted,
	}
	if s.safe == nil {
		return is
	}
	f := s.safe.Stats()
	is.Kind, is.Circuit, is.Healthy = "redis", f.State.String(), f.State == failsafe.Closed
	is.DenyCache = DenyCache{Entries: int64(s.Config.Redis.DenyCache), Hits: f.CacheHits}
	if err := s.lastError.Load(); err != nil && !is.Healthy {
		is.Error = *err
	}
	if err := s.health.trouble(); err != nil {
		is.Healthy, is.Error = false, err.Error()
	}
	return is
}

// DefaultMaxKeys is the default capacity of an embedded store.
const DefaultMaxKeys = 1_000_000 // as in store/memory

func (s *Store) maxKeys() int64 { return cmp.Or(s.Config.Memory.MaxKeys, DefaultMaxKeys) }

// Describe adds the store's metrics to c.
func (s *Store) Describe(c *metrics.Asked) {
	s.describeMemory(c)
	s.snapshot.describe(c)
	s.describeShared(c)
	s.describeHealth(c)
}

// describeMemory adds the metrics of the embedded store; with Redis, of the fallback.
func (s *Store) describeMemory(c *metrics.Asked) {
	keys := c.Gauge("headgate_memory_keys", "Keys in this process's memory store; with Redis, in its local fallback.")
	most := c.Gauge("headgate_memory_max_keys", "Maximum number of keys in this process's memory store.")
	bytes := c.Gauge("headgate_memory_bytes", "Bytes used by this process's memory store.")
	evicted := c.Counter("headgate_memory_evicted_total", "Keys evicted from the memory store to make space, by state: in_debt (still counted) or fresh.", "state")
	swept := c.Counter("headgate_memory_swept_total", "Keys removed from the memory store because their counts had expired.")
	c.Ask(func(out chan<- prometheus.Metric) {
		m := s.memory.Stats()
		keys(out, float64(m.Keys))
		most(out, float64(s.maxKeys()))
		bytes(out, float64(m.Bytes))
		evicted(out, float64(m.Evicted-m.EvictedInDebt), "fresh")
		evicted(out, float64(m.EvictedInDebt), "in_debt")
		swept(out, float64(m.Swept))
	})
}

// describeShared adds the metrics of the shared store. With the memory store they are
// 0.
func (s *Store) describeShared(c *metrics.Asked) {
	circuit := c.Gauge("headgate_store_circuit_open", "1 while the circuit breaker of the store is open and the store is only probed.")
	opened := c.Counter("headgate_store_circuit_opened_total", "Times that the circuit breaker of the store opened.")
	errs := c.Counter("headgate_store_errors_total", "Requests to the store that failed, by kind: timeout, full, read_only, refused, error (any other) or circuit_open (not sent).", "kind")
	hits := c.Counter("headgate_deny_cache_hits_total", "Refusals answered from the deny cache, without a request to the store.")
	c.Ask(func(out chan<- prometheus.Metric) {
		var f failsafe.Stats
		if s.safe != nil {
			f = s.safe.Stats()
		}
		circuit(out, metrics.OneIf(f.State != failsafe.Closed))
		opened(out, float64(f.Opened))
		errs(out, float64(f.Timeouts), "timeout")
		errs(out, float64(f.Full), "full")
		errs(out, float64(f.ReadOnly), "read_only")
		errs(out, float64(f.Refused), "refused")
		errs(out, float64(f.Failures-f.Timeouts-f.Full-f.ReadOnly-f.Refused), "error")
		errs(out, float64(f.FailedFast), "circuit_open")
		hits(out, float64(f.CacheHits))
	})
}
