package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/counts/storing"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// regions examines whether other regions can be read, and whether homes count.
func (i *Installation) regions(ctx context.Context, c *config.Config) (all []Finding) {
	r := &c.Store.Regions
	if c.Store.Kind != config.InRedis || len(r.Peers)+len(r.Homes) == 0 {
		return nil
	}
	own, err := storing.RedisOptions(&c.Store.Redis)
	if err != nil {
		return nil // which store reports
	}
	ctx, cancel := context.WithTimeout(ctx, examineFor)
	defer cancel()
	all = i.peers(ctx, r, own)
	for _, name := range slices.Sorted(maps.Keys(r.Homes)) {
		all = append(all, i.home(ctx, r, name, own))
	}
	return all
}

// peers examines the regions that limits are shared with.
func (i *Installation) peers(ctx context.Context, r *config.Regions, own redis.Options) (all []Finding) {
	const lost = "this region keeps its part of the limits that they share, and gets nothing from the other"
	exchange, err := storing.Exchange(r, own)
	if err != nil {
		return []Finding{{"regions", Fail, err.Error(), "the server does not start", "correct regions.peers"}}
	}
	defer exchange.Close()
	for _, name := range slices.Sorted(maps.Keys(r.Peers)) {
		began := i.Now()
		_, err := exchange.Read(ctx, name, "")
		if err == nil {
			began = i.Now() // without the time to connect
			_, err = exchange.Read(ctx, name, "")
		}
		took := i.Now().Sub(began)
		if err != nil {
			all = append(all, Finding{"regions", Fail, "cannot read the messages of region " + name + ": " + err.Error(), lost, "start its Redis, or correct regions.peers; the user needs the permissions in docs/many/regions.md"})
			continue
		}
		if err := storing.LookAtControls(ctx, exchange, name, r.Name); err != nil {
			all = append(all, Finding{"regions", Fail, "cannot read the bans, overrides, grants and resets of region " + name + ": " + err.Error(), "those that are made there are not made here", "grant the user the permissions in docs/many/regions.md"})
			continue
		}
		all = append(all, Finding{Check: "regions", Level: OK, What: fmt.Sprintf("region %s can be read in %s", name, took.Round(time.Microsecond))})
	}
	return all
}

// home examines a region that counts limits for this one.
func (i *Installation) home(ctx context.Context, r *config.Regions, name string, own redis.Options) Finding {
	const lost = "on_store_error decides about the limits that it counts"
	o, err := storing.HomeOptions(r, name, own)
	if err != nil {
		return Finding{"regions", Fail, err.Error(), "the server does not start", "correct regions.homes"}
	}
	waits := o.Timeout
	o.Timeout = connectFor
	s, err := connected(ctx, o)
	if err != nil {
		return Finding{"regions", Fail, "region " + name + ": " + err.Error(), "the server does not start", "check the password and the permissions of the user in regions.homes"}
	}
	defer func() { _ = s.Close() }()
	look := store.Op{Key: rand.Text(), Scope: "verify-homes", Rule: headgate.PerMinute(1).Rule(), Kind: store.KindPeek}
	began := i.Now()
	if _, err = store.Execute(ctx, s, look); err == nil {
		began = i.Now() // without the time to load the script
		_, err = store.Execute(ctx, s, look)
	}
	took := i.Now().Sub(began)
	if err != nil {
		return Finding{"regions", Fail, "region " + name + " does not count: " + err.Error(), lost, "start its Redis, or correct regions.homes; the user needs the permissions in docs/many/regions-home.md"}
	}
	f := Finding{Check: "regions", Level: OK, What: fmt.Sprintf("region %s counts limits for this one, and answers in %s", name, took.Round(time.Microsecond))}
	if took > waits {
		f.Level, f.Why, f.Do = Warn, fmt.Sprintf("a decision waits at most %s; then on_store_error decides", waits), "raise regions.timeout"
	}
	return f
}
