package storing

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/regions"
)

// verifyFor is how long Start waits for regions that do not answer.
const verifyFor = time.Second

// openRegions lets regions share limits, if there are several. own are the options of
// this region's Redis.
func (s *Store) openRegions(own redis.Options) error {
	c := &s.Config.Regions
	if len(c.Peers) == 0 {
		return nil
	}
	exchange, err := Exchange(c, own)
	if err != nil {
		return err
	}
	watch := regionWatch{down: make(map[string]bool), log: s.logExchange}
	s.regions, err = regions.New(s.blocks, regions.Options{
		Name: c.Name, Others: slices.Sorted(maps.Keys(c.Peers)), Exchange: exchange,
		Interval: c.Interval, Counts: s.safe, OnError: watch.report,
	})
	if err != nil {
		exchange.Close()
		return &config.SourceError{Source: "regions.peers", Message: err.Error()}
	}
	s.Life.OnEnd(exchange.Close)
	ctx, cancel := context.WithTimeout(context.Background(), verifyFor)
	defer cancel()
	if err := s.regions.Verify(ctx); err != nil {
		_ = s.regions.Close()
		return &config.SourceError{Source: "regions.peers", Message: err.Error(), Hint: "name the Redis of each other region: a region cannot share limits with itself"}
	}
	s.Counts, s.exchange = s.regions, exchange
	return nil
}

// logExchange logs that a region's messages cannot be read, or this one's not be written; or
// that they can again.
func (s *Store) logExchange(region string, err error) {
	own := region == s.Config.Regions.Name
	switch {
	case own && err != nil:
		s.Logger.Warn("this region cannot ask the others for tokens: it keeps what it has of limits that they share", "region", region, "err", err)
	case own:
		s.Logger.Info("this region can ask the others for tokens again", "region", region)
	case err != nil:
		s.Logger.Warn("no news from a region: each keeps what it has of limits that they share", "region", region, "err", err)
	default:
		s.Logger.Info("news from the region again", "region", region)
	}
}

// Exchange connects this region with its peers. own are the options of this region's Redis.
// The error is a *config.SourceError.
func Exchange(c *config.Regions, own redis.Options) (*redis.Exchange, error) { //nolint:gocritic // once
	peers := make(map[string]redis.Options, len(c.Peers))
	for name, url := range c.Peers {
		o, err := regionURL(url, own.Prefix)
		if err != nil {
			return nil, &config.SourceError{Source: "regions.peers", Message: "region " + name + ": " + err.Error()}
		}
		peers[name] = o
	}
	exchange, err := redis.NewExchange(own, peers)
	if err != nil {
		return nil, &config.SourceError{Source: "regions.peers", Message: err.Error()}
	}
	return exchange, nil
}

// regionURL reads the URL of another region's Redis, whose prefix of keys is that of this one.
func regionURL(url config.Secret, prefix string) (redis.Options, error) {
	o, err := redis.ParseURL(string(url))
	if err == nil && o.Prefix != redis.DefaultPrefix && o.Prefix != prefix {
		err = fmt.Errorf("all regions have the same prefix of keys, and that of this one is %q", prefix)
	}
	return o, err
}

// regionWatch logs when a region stops and starts to answer.
type regionWatch struct {
	log func(region string, err error)

	mu   sync.Mutex
	down map[string]bool
}

func (w *regionWatch) report(region string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down[region] != (err != nil) {
		w.down[region] = err != nil
		w.log(region, err)
	}
}

// Regions returns what this process knows of each other region; none without regions.
func (s *Store) Regions() []regions.Stats {
	if s.regions == nil {
		return nil
	}
	return s.regions.Stats()
}

// RegionsAsked returns how many tokens this process has asked the other regions for that
// have not come yet.
func (s *Store) RegionsAsked() int64 {
	if s.regions == nil {
		return 0
	}
	return s.regions.Asked()
}

// DescribeRegions adds the metrics of limits that regions share to c. labels returns the
// labels of a limit's series, and active the rules.
func (s *Store) DescribeRegions(c *metrics.Asked, labels func(domain, rule string) (d, r string, ok bool), active func() *rules.Ruleset) {
	reachable := c.Gauge("headgate_region_reachable", "1 if this process has news from the region, 0 if it could not read any. Only the process that acts for its own region reads, and has this series.", "region")
	cut := c.Gauge("headgate_region_cut_seconds", "For how long no news of the region could be read, in seconds; 0 if it can be.", "region")
	lag := c.Gauge("headgate_region_lag_seconds", "How old the messages of the region were when they were last read, in seconds.", "region")
	given := c.Counter("headgate_region_given_tokens_total", "Tokens that this process gave to the region.", "region")
	received := c.Counter("headgate_region_received_tokens_total", "Tokens that this process received from the region.", "region")
	skipped := c.Counter("headgate_region_skipped_total", "Gifts of the region and its requests for tokens that this process could not carry out in time: the store refused the key, this release does not know the limit or the message, or they are for another store of that name.", "region")
	open := c.Gauge("headgate_region_unacknowledged_tokens", "Tokens that this process gave to the region, which has not confirmed them yet.", "region")
	lost := c.Counter("headgate_region_unconfirmed_tokens_total", "Tokens that this process gave to the region, which did not confirm them for half a minute: they may be lost.", "region")
	asked := c.Gauge("headgate_region_asked_tokens", "Tokens that this process has asked the other regions for and that have not come yet.")
	over := c.Gauge("headgate_region_over_admission_bound_tokens", "The most that all regions together can admit above the limit of a key that they share.", "domain", "rule")
	c.Ask(func(out chan<- prometheus.Metric) {
		if s.regions == nil {
			return
		}
		for _, r := range s.Regions() {
			if r.Acts && (r.HasRead || r.Cut > 0) {
				reachable(out, metrics.OneIf(r.Cut == 0), r.Region)
				cut(out, r.Cut.Seconds(), r.Region)
				lag(out, r.Lag.Seconds(), r.Region)
			}
			given(out, float64(r.Given), r.Region)
			received(out, float64(r.Received), r.Region)
			skipped(out, float64(r.Skipped), r.Region)
			open(out, float64(r.Unacknowledged), r.Region)
			lost(out, float64(r.Unconfirmed), r.Region)
		}
		asked(out, float64(s.RegionsAsked()))
		for at, n := range s.regionsOver(labels, active()) {
			over(out, float64(n), at.domain, at.rule)
		}
	})
}

// regionsOver returns how much regions together can admit above the limits that they
// share: of limits that share a series, the most.
func (s *Store) regionsOver(labels func(domain, rule string) (d, r string, ok bool), active *rules.Ruleset) map[blockLabels]int64 {
	by := make(map[blockLabels]int64)
	n := len(s.Config.Regions.Peers) + 1
	for _, r := range active.Rules() {
		if !r.Limit.Rule().Shared() {
			continue
		}
		if domain, rule, ok := labels(r.Domain, r.Name); ok {
			at := blockLabels{domain, rule}
			by[at] = max(by[at], regions.OverOf(r.Limit, n).Sum())
		}
	}
	return by
}
