package storing

import (
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/regions"
)

// openRegions lets regions share limits, if there are several. own are the options of
// this region's Redis.
func (s *Store) openRegions(own redis.Options) error {
	c := &s.Config.Regions
	if c.Name == "" {
		return nil
	}
	peers := make(map[string]redis.Options, len(c.Peers))
	for name, url := range c.Peers {
		o, err := redis.ParseURL(string(url))
		if err != nil {
			return &config.SourceError{Source: "regions.peers", Message: "region " + name + ": " + err.Error()}
		}
		peers[name] = o
	}
	exchange, err := redis.NewExchange(own, peers)
	if err != nil {
		return &config.SourceError{Source: "regions.peers", Message: err.Error()}
	}
	watch := regionWatch{store: s, down: make(map[string]bool)}
	s.regions, err = regions.New(s.blocks, regions.Options{
		Name: c.Name, Others: slices.Sorted(maps.Keys(c.Peers)), Exchange: exchange,
		Interval: c.Interval, Counts: s.safe, OnError: watch.told,
	})
	if err != nil {
		exchange.Close()
		return &config.SourceError{Source: "regions.peers", Message: err.Error()}
	}
	s.Life.OnEnd(exchange.Close)
	s.Counts = s.regions
	return nil
}

// regionWatch logs when a region stops and starts to answer.
type regionWatch struct {
	store *Store
	mu    sync.Mutex
	down  map[string]bool
}

func (w *regionWatch) told(region string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down[region] == (err != nil) {
		return
	}
	w.down[region] = err != nil
	if err != nil {
		w.store.Logger.Warn("no news from a region: each keeps what it has of limits that they share", "region", region, "err", err)
		return
	}
	w.store.Logger.Info("news from the region again", "region", region)
}

// Regions returns what this process knows of each other region; none without regions.
func (s *Store) Regions() []regions.Stats {
	if s.regions == nil {
		return nil
	}
	return s.regions.Stats()
}

// DescribeRegions adds the metrics of limits that regions share to c.
func (s *Store) DescribeRegions(c *metrics.Asked) {
	reachable := c.Gauge("headgate_region_reachable", "1 if this process has news from the region, 0 if it could not read any. Only the process that acts for its own region reads.", "region")
	given := c.Counter("headgate_region_given_tokens_total", "Tokens that this process gave to the region.", "region")
	received := c.Counter("headgate_region_received_tokens_total", "Tokens that this process received from the region.", "region")
	c.Ask(func(out chan<- prometheus.Metric) {
		for _, r := range s.Regions() {
			reachable(out, metrics.OneIf(r.Err == nil), r.Region)
			given(out, float64(r.Given), r.Region)
			received(out, float64(r.Received), r.Region)
		}
	})
}
