package redis_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/regions"
)

// reader is the user that docs/many/regions.md tells operators to create for other regions.
const readerACL = "on >secret resetkeys ~hg:{%regions}:news ~hg:{%tcontrol}:* resetchannels -@all +xrange +get +hmget +hlen +zcard +zrangebyscore +zmscore +time +ping +hello"

// continent is some regions with a server each, and a proxy from each to each other.
type continent struct {
	*testing.T
	names   []string
	servers map[string]*redistest.Server
	proxies map[[2]string]*redistest.Proxy // from, to
	stores  map[string][]*regions.Store
	cost    map[string]*atomic.Int64
}

func newContinent(t *testing.T, processes int, names ...string) *continent {
	t.Helper()
	c := &continent{T: t, names: names, servers: map[string]*redistest.Server{}, proxies: map[[2]string]*redistest.Proxy{}, stores: map[string][]*regions.Store{}, cost: newCosts(names...)}
	for _, name := range names {
		c.servers[name] = redistest.Standalone(t)
		c.servers[name].Do(append([]string{"ACL", "SETUSER", "headgate-reader"}, strings.Fields(readerACL)...)...)
	}
	for _, name := range names {
		peers := map[string]redis.Options{}
		for _, other := range names {
			if other == name {
				continue
			}
			p := redistest.NewProxy(t, c.servers[other].Addr)
			c.proxies[[2]string{name, other}] = p
			peers[other] = redis.Options{Addresses: []string{p.Addr}, Username: "headgate-reader", Password: "secret"}
		}
		for range processes {
			own := redis.Options{Addresses: []string{c.servers[name].Addr}, Timeout: time.Second}
			c.stores[name] = append(c.stores[name], newRegion(t, name, own, peers))
		}
	}
	return c
}

func newCosts(names ...string) map[string]*atomic.Int64 {
	costs := make(map[string]*atomic.Int64)
	for _, name := range names {
		costs[name] = new(atomic.Int64)
	}
	return costs
}

// newRegion returns the store of a process in a region.
func newRegion(t testing.TB, name string, own redis.Options, peers map[string]redis.Options) *regions.Store {
	t.Helper()
	shared, err := redis.New(t.Context(), own)
	if err != nil {
		t.Fatal(err)
	}
	ex, err := redis.NewExchange(own, peers)
	if err != nil {
		t.Fatal(err)
	}
	s, err := regions.New(shared, regions.Options{Name: name, Others: slices.Sorted(maps.Keys(peers)), Exchange: ex, Interval: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(); ex.Close() })
	return s
}

// load takes in a region, from all its processes, until stop is closed.
func (c *continent) load(name string, limit headgate.Limit, pause time.Duration, stop chan struct{}, wait *sync.WaitGroup) {
	for _, s := range c.stores[name] {
		wait.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(pause):
				}
				d, err := store.Execute(context.Background(), s, store.Op{Key: "k", Scope: "api/rule", Rule: limit.Rule(), Cost: 1})
				switch {
				case errors.Is(err, store.ErrUnavailable):
				case err != nil:
					c.Error(err)
				case d.Allowed:
					c.cost[name].Add(1)
				}
			}
		})
	}
}

func (c *continent) total() (sum int64) {
	for _, n := range c.cost {
		sum += n.Load()
	}
	return sum
}

// await waits until all regions together have admitted n.
func (c *continent) await(n int64, within time.Duration) {
	c.Helper()
	for end := time.Now().Add(within); c.total() < n && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
}

// TestRegionsThroughFaults: three servers with 80 ms between them, six processes, and
// users who may only read. In each case all regions together admit exactly the limit
// once everything works again, and never more.
func TestRegionsThroughFaults(t *testing.T) {
	t.Parallel()
	const n = 3000
	limit := headgate.LimitOf(headgate.Per(n, 30*24*time.Hour).WithAlgorithm(store.FixedWindow).Rule().InRegions(store.Regions{}))
	for _, tc := range []struct {
		name  string
		fault func(c *continent)
		heal  func(c *continent)
	}{
		{"none", func(*continent) {}, func(*continent) {}},
		{"cut off", func(c *continent) { c.each(func(p *redistest.Proxy) { p.Cut() }) }, func(c *continent) { c.each((*redistest.Proxy).Heal) }},
		{"one way", func(c *continent) { c.proxies[[2]string{"eu", "us"}].HalfOpen() }, func(c *continent) { c.each((*redistest.Proxy).Heal) }},
		{"connections reset", func(c *continent) {
			for range 10 {
				c.each((*redistest.Proxy).Reset)
				time.Sleep(50 * time.Millisecond)
			}
		}, func(*continent) {}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := newContinent(t, 2, "eu", "us", "ap")
			c.each(func(p *redistest.Proxy) { p.Delay(80 * time.Millisecond) })
			stop, wait := make(chan struct{}), new(sync.WaitGroup)
			began := time.Now()
			c.load("eu", limit, time.Millisecond, stop, wait)
			c.load("us", limit, 20*time.Millisecond, stop, wait)
			c.await(n/4, 10*time.Second)
			tc.fault(c)
			c.await(n*3/4, 4*time.Second)
			during := c.total()
			tc.heal(c)
			c.await(n, 30*time.Second)
			took := time.Since(began)
			time.Sleep(500 * time.Millisecond)
			close(stop)
			wait.Wait()
			if got := c.total(); got != n {
				t.Errorf("%d of %d were admitted", got, n)
			}
			t.Logf("%d of %d after %.1f s: eu %d, us %d; %d before the cure", c.total(), n, took.Seconds(), c.cost["eu"].Load(), c.cost["us"].Load(), during)
		})
	}
}

func (c *continent) each(do func(*redistest.Proxy)) {
	for _, p := range c.proxies {
		do(p)
	}
}
