package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/ownform"
	"github.com/headgate/headgate/store/redis"
)

// Regions are several places with a store each, which share limits.
type Regions struct {
	Name string // of the region that this process is in; empty without regions
	// Peers are the URLs of the stores of all other regions, by name. They may contain
	// passwords.
	Peers map[string]Secret
	// Interval is how often news is exchanged, which is no setting; 0 is the default.
	Interval time.Duration
	// Homes are the URLs of the stores of regions that count limits for all, by name,
	// for users who may write. They may contain passwords.
	Homes map[string]Secret
	// Timeout is how long a request waits for a home; 0 is DefaultHomeTimeout.
	Timeout time.Duration
}

// DefaultHomeTimeout is the default of Regions.Timeout: a round trip around the world
// takes about 0.3 seconds, and the first call needs up to three.
const DefaultHomeTimeout = time.Second

func regionSettings() []Setting {
	stores := func(key, user string, field func(*Regions) *map[string]Secret) Setting {
		return List("regions."+key, func(c *Config, v []string) (err error) {
			*field(&c.Store.Regions), err = regionStores(v, user)
			return err
		}).Pairs()
	}
	return []Setting{
		One("regions.name", func(c *Config, v string) error {
			c.Store.Regions.Name = v
			return regionName(v)
		}).Means("none", "the [region](many/regions.md) of this process, such as `eu`").ForRules(),
		stores("homes", "headgate", func(r *Regions) *map[string]Secret { return &r.Homes }).As("URLs by name").Means("none", "the Redis of each region that [counts limits for all](many/regions-home.md)").ForRules(),
		stores("peers", "headgate-reader", func(r *Regions) *map[string]Secret { return &r.Peers }).As("URLs by name").Means("none", "the Redis of each other region").ForRules(),
		Duration("regions.timeout", func(c *Config) *time.Duration { return &c.Store.Regions.Timeout }, time.Millisecond).Means("`1s`", "how long a request waits for the Redis of a home"),
	}
}

func regionName(v string) error {
	if !ownform.IsRegion(v) {
		return &hinted{fmt.Sprintf("%q is not the name of a region", v), "use up to 32 lower-case letters, digits and hyphens, such as eu-west"}
	}
	return nil
}

func regionStores(list []string, user string) (map[string]Secret, error) {
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
			return nil, &hinted{fmt.Sprintf("the store of region %s is not a URL", name), "write a URL such as rediss://" + user + ":secret@redis.us.example:6380"}
		}
		if _, err := redis.ParseURL(urls[name]); err != nil {
			return nil, fmt.Errorf("region %s: %w", name, err)
		}
		peers[name] = Secret(urls[name])
	}
	return peers, nil
}

// checkRegions checks that the regions are complete.
func (c *Config) checkRegions() Errors {
	errs := c.checkRegionNames()
	r := &c.Store.Regions
	if len(errs) == 0 && r.Name != "" && c.Store.Kind != InRedis {
		errs.addAt("regions.name", "regions share limits through Redis, and this process counts in memory", "set store: redis://…, the Redis of region "+r.Name)
	}
	own := c.Store.Redis.URL
	if own == "" {
		return errs
	}
	for key, stores := range map[string]map[string]Secret{"regions.peers": r.Peers, "regions.homes": r.Homes} {
		for _, name := range slices.Sorted(maps.Keys(stores)) {
			if stores[name] == own {
				errs.addAt(key, "the store of region "+name+" is the store of this region", "name the Redis of region "+name)
			}
		}
	}
	return errs
}

// checkRegionNames checks what needs no other settings.
func (c *Config) checkRegionNames() (errs Errors) {
	r := &c.Store.Regions
	_, itself := r.Peers[r.Name]
	_, home := r.Homes[r.Name]
	switch {
	case r.Name == "" && len(r.Peers) == 0 && len(r.Homes) == 0:
	case r.Name == "":
		errs.addAt("regions.name", "the region of this process has no name", "set regions.name, which is not one of regions.peers or regions.homes")
	case itself:
		errs.addAt("regions.peers", fmt.Sprintf("%s is the region of this process", r.Name), "name only the other regions")
	case home:
		errs.addAt("regions.homes", fmt.Sprintf("%s is the region of this process, which uses its own store", r.Name), "name only the other regions")
	}
	for key, stores := range map[string]map[string]Secret{"regions.peers": r.Peers, "regions.homes": r.Homes} {
		of := make(map[Secret]string)
		for _, name := range slices.Sorted(maps.Keys(stores)) {
			if other, twice := of[stores[name]]; twice {
				errs.addAt(key, "the regions "+other+" and "+name+" have the same store", "name the Redis of each region")
			}
			of[stores[name]] = name
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

// settleRegions sets in RuleOptions which regions share limits, and which can count a
// limit for all.
func (c *Config) settleRegions() {
	if r := &c.Store.Regions; r.Name != "" {
		c.RuleOptions.Regions = &rules.Regions{Own: r.Name, Others: slices.Sorted(maps.Keys(r.Peers)), Homes: slices.Sorted(maps.Keys(r.Homes))}
	}
}
