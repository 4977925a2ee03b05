package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/rules"
)

// Regions are several places with a store each, which share limits.
type Regions struct {
	Name string // of the region that this process is in; empty without regions
	// Peers are the URLs of the stores of all other regions, by name. They may contain
	// passwords.
	Peers    map[string]Secret
	Interval time.Duration // how often news is exchanged; 0 is the default
}

const longestRegion = 32

func regionSettings() []Setting {
	peers := List("regions.peers", func(c *Config, v []string) (err error) {
		c.Store.Regions.Peers, err = regionPeers(v)
		return err
	})
	peers.pairs = true
	return []Setting{
		One("regions.name", func(c *Config, v string) error {
			c.Store.Regions.Name = v
			return regionName(v)
		}).ForRules(),
		peers.ForRules(),
		Duration("regions.interval", func(c *Config) *time.Duration { return &c.Store.Regions.Interval }, 10*time.Millisecond),
	}
}

func regionName(v string) error {
	if v == "" || len(v) > longestRegion || strings.Trim(v, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return &hinted{fmt.Sprintf("%q is not the name of a region", v), "use up to 32 lower-case letters, digits and hyphens, such as eu-west"}
	}
	return nil
}

func regionPeers(list []string) (map[string]Secret, error) {
	urls, err := pairs(list)
	if err != nil {
		return nil, err
	}
	peers := make(map[string]Secret, len(urls))
	for _, name := range slices.Sorted(maps.Keys(urls)) {
		if err := regionName(name); err != nil {
			return nil, err
		}
		if !strings.Contains(urls[name], "://") { // it may contain a password
			return nil, &hinted{fmt.Sprintf("the store of region %s is not a URL", name), "write a URL such as rediss://headgate-reader:secret@redis.us.example:6380"}
		}
		peers[name] = Secret(urls[name])
	}
	return peers, nil
}

// checkRegions checks that the regions are complete.
func (c *Config) checkRegions() (errs Errors) {
	r := &c.Store.Regions
	_, itself := r.Peers[r.Name]
	switch {
	case r.Name == "" && len(r.Peers) == 0:
	case r.Name == "":
		errs.note("regions.name", "the region of this process has no name", "set regions.name, which is not one of regions.peers")
	case len(r.Peers) == 0:
		errs.note("regions.peers", "there is no other region", "name the stores of the other regions, for example us: rediss://headgate-reader:secret@redis.us.example:6380")
	case itself:
		errs.note("regions.peers", fmt.Sprintf("%s is the region of this process", r.Name), "name only the other regions")
	case c.Store.Kind != InRedis:
		errs.note("regions.name", "regions share limits through Redis, and this process counts in memory", "set store: redis://…, the Redis of region "+r.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Peers)) {
		if own := c.Store.Redis.URL; own != "" && r.Peers[name] == own {
			errs.note("regions.peers", "the store of region "+name+" is the store of this region", "name the Redis of region "+name)
		}
	}
	return errs
}

// Among returns the regions that share limits, or nil if there are none.
func (r *Regions) Among() *rules.Regions {
	if r.Name == "" || len(r.Peers) == 0 {
		return nil
	}
	return &rules.Regions{Own: r.Name, Others: slices.Sorted(maps.Keys(r.Peers))}
}

// settleRegions sets in RuleOptions which regions share limits.
func (c *Config) settleRegions() { c.RuleOptions.Regions = c.Store.Regions.Among() }
