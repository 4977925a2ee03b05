package storing

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/blocks"
	"github.com/headgate/headgate/store/failsafe"
	"github.com/headgate/headgate/store/homes"
	"github.com/headgate/headgate/store/redis"
)

// home is the store of another region that counts limits for all. It has a deadline, a
// circuit breaker and a deny cache of its own, so that nothing else waits for it.
type home struct {
	region    string
	shared    *redis.Store
	safe      *failsafe.Store
	blocks    *blocks.Store
	lastError atomic.Pointer[string] // from when the circuit last opened
}

// homeTimeout is how long a request waits for a home.
func homeTimeout(c *config.Regions, url *redis.Options) time.Duration {
	switch {
	case c.Timeout > 0:
		return c.Timeout
	case url.Timeout != redis.DefaultTimeout:
		return url.Timeout
	}
	return config.DefaultHomeTimeout
}

// openHomes lets other regions count limits, if there are any. It returns the longest
// time that a request waits for one. own are the options of this region's Redis.
func (s *Store) openHomes(ctx context.Context, own redis.Options) (longest time.Duration, err error) {
	c := &s.Config.Regions
	if len(c.Homes) == 0 {
		return 0, nil
	}
	var wait sync.WaitGroup
	errs := make([]error, len(c.Homes))
	s.homes = make([]*home, len(c.Homes))
	for i, region := range slices.Sorted(maps.Keys(c.Homes)) {
		o, err := HomeOptions(c, region, own)
		if err != nil {
			return 0, err
		}
		longest = max(longest, o.Timeout)
		s.homes[i] = &home{region: region}
		wait.Go(func() { errs[i] = s.openHome(ctx, s.homes[i], o) })
	}
	wait.Wait()
	stores := make(map[string]store.Store, len(s.homes))
	for i, h := range s.homes {
		if errs[i] != nil {
			return 0, &config.SourceError{Source: "regions.homes", Message: "region " + h.region + ": " + errs[i].Error()}
		}
		stores[h.region] = h.blocks
	}
	if err := s.verifyHomes(ctx); err != nil {
		return 0, err
	}
	all, err := homes.New(s.Counts, homes.Options{Region: c.Name, Homes: stores, Partial: true})
	if err != nil {
		return 0, fmt.Errorf("regions.homes: %w", err)
	}
	s.Counts = all
	return longest, nil
}

// verifyHomes returns an error if the store of a home is that of this region, whatever its
// URL looks like: it counts something here and looks for it there. Homes that do not answer
// in time are not examined.
func (s *Store) verifyHomes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, verifyFor)
	defer cancel()
	mark := store.Op{Key: rand.Text(), Scope: "verify-homes", Rule: headgate.PerMinute(1).WithAlgorithm(headgate.FixedWindow).Rule(), Cost: 1}
	if _, err := store.Execute(ctx, s.shared, mark); err != nil {
		return nil //nolint:nilerr // this region's own store is down, which others report
	}
	mark.Kind = store.KindPeek
	for _, h := range s.homes {
		if d, err := store.Execute(ctx, h.shared, mark); err == nil && !d.Allowed {
			return &config.SourceError{
				Source: "regions.homes", Message: "the store of region " + h.region + " is the store of this region, " + s.Config.Regions.Name,
				Hint: "name the Redis of region " + h.region,
			}
		}
	}
	return nil
}

// HomeOptions returns the options of the Redis of a home. own are those of this region's
// Redis. The error is a *config.SourceError.
func HomeOptions(c *config.Regions, region string, own redis.Options) (redis.Options, error) {
	o, err := regionURL(c.Homes[region], own.Prefix)
	if err != nil {
		return o, &config.SourceError{Source: "regions.homes", Message: "region " + region + ": " + err.Error()}
	}
	o.Prefix, o.Timeout, o.Clock, o.KeyTimes = own.Prefix, homeTimeout(c, &o), own.Clock, own.KeyTimes
	return o, nil
}

// openHome opens the store of a home. One that cannot be reached yet is no error.
func (s *Store) openHome(ctx context.Context, h *home, o redis.Options) (err error) {
	if h.shared, err = redis.New(ctx, o); err != nil {
		return err
	}
	if err := h.shared.Ping(ctx); err != nil {
		s.Logger.Warn("the store of a region that counts limits does not answer yet: on_store_error of these rules applies", "region", h.region, "err", err)
	} else {
		s.Logger.Info("store of a region connected", "region", h.region, "addresses", o.Addresses, "timeout", o.Timeout.String())
	}
	r := &s.Config.Redis
	h.safe = failsafe.New(h.shared, failsafe.Options{
		Timeout:   o.Timeout,
		DenyCache: failsafe.DenyCache{Entries: r.DenyCache, MaxAge: r.DenyMaxAge},
		OnChange: func(change failsafe.Change) {
			if change.State == failsafe.Open {
				text := change.Err.Error()
				h.lastError.Store(&text)
				s.Logger.Error("a region that counts limits does not answer: on_store_error of these rules applies", "region", h.region, "err", change.Err)
				return
			}
			s.Logger.Info("the region that counts limits answers again", "region", h.region, "after", change.After.String())
		},
	})
	h.blocks = blocks.New(h.safe, blocks.Options{})
	return nil
}

// eachBlocks calls do for the blocks of this region's store and of all homes.
func (s *Store) eachBlocks(do func(*blocks.Store)) {
	if s.blocks == nil {
		return
	}
	do(s.blocks)
	for _, h := range s.homes {
		do(h.blocks)
	}
}

// forget drops all remembered refusals.
func (s *Store) forget() {
	s.safe.Forget()
	for _, h := range s.homes {
		h.safe.Forget()
	}
}

// Home is the state of a region that counts limits for this one.
type Home struct {
	Region    string
	Reachable bool   // its store answers, or has not been asked yet
	Err       string // why it does not
	// Failures is how many requests it did not answer, Timeouts of these within the
	// time, and FailedFast how many it was not asked because of that.
	Failures, Timeouts, FailedFast uint64
}

// Homes returns the regions that count limits for this one.
func (s *Store) Homes() []Home {
	all := make([]Home, 0, len(s.homes))
	for _, h := range s.homes {
		stats := h.safe.Stats()
		is := Home{
			Region: h.region, Reachable: stats.State == failsafe.Closed,
			Failures: stats.Failures, Timeouts: stats.Timeouts, FailedFast: stats.FailedFast,
		}
		if err := h.lastError.Load(); err != nil && !is.Reachable {
			is.Err = *err
		}
		all = append(all, is)
	}
	return all
}

// DescribeHomes adds the metrics of regions that count limits for this one to c.
func (s *Store) DescribeHomes(c *metrics.Asked) {
	reachable := c.Gauge("headgate_home_reachable", "1 if the Redis of the region, which counts limits for this one, answers; 0 while it is only probed.", "region")
	errs := c.Counter("headgate_home_errors_total", "Requests to the Redis of the region that failed, by kind: timeout, error (any other) or circuit_open (not sent).", "region", "kind")
	c.Ask(func(out chan<- prometheus.Metric) {
		for _, h := range s.Homes() {
			reachable(out, metrics.OneIf(h.Reachable), h.Region)
			errs(out, float64(h.Timeouts), h.Region, "timeout")
			errs(out, float64(h.Failures-h.Timeouts), h.Region, "error")
			errs(out, float64(h.FailedFast), h.Region, "circuit_open")
		}
	})
}
