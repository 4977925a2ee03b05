package storing

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/decide/orders"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/regions"
)

// followRegions brings what other regions say of keys to this one, while this process acts
// for it.
func (s *Store) followRegions(m *control.Manager, e *engine.Engine) error {
	if s.regions == nil {
		return nil
	}
	carrier := orders.Carrier{Engine: e, Store: s.Counts, Clock: s.Clock}
	watch := regionWatch{down: make(map[string]bool), log: func(region string, err error) {
		if err != nil {
			s.Logger.Warn("cannot read the bans, overrides, grants and resets of a region", "region", region, "err", err)
			return
		}
		s.Logger.Info("the bans, overrides, grants and resets of the region can be read again", "region", region)
	}}
	interval := s.Config.Regions.Interval
	if interval <= 0 {
		interval = regions.DefaultInterval
	}
	for _, name := range slices.Sorted(maps.Keys(s.Config.Regions.Peers)) {
		table, err := s.exchange.Table(name, controlTable)
		if err != nil {
			return err
		}
		f, err := control.Follow(control.FollowOptions{
			Manager: m, Region: name, Table: table, Clock: s.Clock, OnError: watch.report,
			Carry: func(ctx context.Context, o *control.Order) error {
				err := carrier.Carry(ctx, o)
				if err != nil && !errors.Is(err, headgate.ErrUnavailable) { // otherwise it is tried again
					s.Logger.Warn("cannot carry out a grant or reset of another region", "region", name, "kind", o.Kind.String(), "domain", o.Domain, "rule", o.Rule, "err", err)
				}
				return err
			},
		})
		if err != nil {
			return err
		}
		s.followers = append(s.followers, f)
		s.Life.Go(func(ctx context.Context) { s.follow(ctx, f, interval) })
	}
	return nil
}

// LookAtControls returns why what a region says of keys cannot be read by the region own.
func LookAtControls(ctx context.Context, e *redis.Exchange, region, own string) error {
	table, err := e.Table(region, controlTable)
	if err == nil {
		_, _, err = table.Look(ctx, own)
	}
	return err
}

func (s *Store) follow(ctx context.Context, f *control.Follower, interval time.Duration) {
	ticker := time.NewTicker(interval) //nolint:forbidigo // messages travel in real time
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if s.regions.Acts() {
				f.Tick(ctx)
			}
		}
	}
}

// Followed returns what this process has read of what other regions say of keys; none
// without regions.
func (s *Store) Followed() []control.Followed {
	list := make([]control.Followed, len(s.followers))
	for i, f := range s.followers {
		list[i] = f.Stats()
	}
	return list
}

const (
	reachEvery = 50 * time.Millisecond
	reachFor   = 2 * time.Second
)

// Reach waits, at most 2 s, until other regions have read what this process knows of its
// own region's bans, overrides, grants and resets. It returns for each region whether it
// has.
func (s *Store) Reach(ctx context.Context) map[string]bool {
	ctx, cancel := context.WithTimeout(ctx, reachFor)
	defer cancel()
	reached := make(map[string]bool, len(s.followers))
	got := make(chan string)
	for _, f := range s.followers {
		name := f.Stats().Region
		reached[name] = false
		go func() {
			if !untilReached(ctx, f) {
				name = ""
			}
			got <- name
		}()
	}
	for range s.followers {
		if name := <-got; name != "" {
			reached[name] = true
		}
	}
	return reached
}

func untilReached(ctx context.Context, f *control.Follower) bool {
	for ctx.Err() == nil {
		if ok, err := f.Reached(ctx); ok && err == nil {
			return true
		}
		select {
		case <-ctx.Done():
		case <-time.After(reachEvery): //nolint:forbidigo // messages travel in real time
		}
	}
	return false
}

// DescribeFollowed adds the metrics of what other regions say of keys to c.
func (s *Store) DescribeFollowed(c *metrics.Asked) {
	changes := c.Counter("headgate_region_changes_total", "Bans, overrides, grants and resets of the region that this process has read, by result: merged, unreadable (by this release), full (the table is), late (an old reset) or no_rule.", "region", "result")
	age := c.Gauge("headgate_region_changes_read_seconds", "How long ago this process has last read what the region says of keys, in seconds. Only the process that acts for its own region reads, and has this series.", "region")
	c.Ask(func(out chan<- prometheus.Metric) {
		for _, f := range s.Followed() {
			changes(out, float64(f.Received), f.Region, "merged")
			changes(out, float64(f.Unreadable), f.Region, "unreadable")
			changes(out, float64(f.Full), f.Region, "full")
			changes(out, float64(f.Late), f.Region, "late")
			changes(out, float64(f.Failed), f.Region, "no_rule")
			if f.HasRead && s.regions.Acts() {
				age(out, f.Read.Seconds(), f.Region)
			}
		}
	})
}
