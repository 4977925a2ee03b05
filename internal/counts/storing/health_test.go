package storing

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/failsafe"
	"github.com/headgate/headgate/store/redis"
)

// TestEvictionsAreLoggedOnce: keys that a Redis evicts while Headgate runs are counted,
// also by a policy that was set meanwhile. The log says so once, with the policy that
// would avoid it. What it had evicted before says nothing about what it loses now.
func TestEvictionsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"volatile-ttl", "allkeys-lru"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			server := redistest.Standalone(t, "--maxmemory-policy", "noeviction", "--maxmemory-eviction-tenacity", "100") // evicts all before it answers
			shared, err := redis.New(t.Context(), redis.Options{Addresses: []string{server.Addr}, Timeout: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = shared.Close() })
			var log bytes.Buffer
			s := &Store{Options: Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, shared: shared, safe: failsafe.New(shared, failsafe.Options{Timeout: 10 * time.Second})}
			var c metrics.Asked
			s.describeHealth(&c)
			now := time.Time{}
			look := func() {
				now = now.Add(policyEvery)
				s.checkHealth(now)
			}
			said := func(text string) int { return strings.Count(log.String(), "the store "+text) }
			expect := func(warned, evicted int, evicting bool) {
				t.Helper()
				if said("evicts keys") != warned || said("has evicted keys") != evicted || s.evicting(t.Context()) != evicting {
					t.Errorf("want %d, %d, %t; the log:\n%s", warned, evicted, evicting, log.String())
				}
				count := fmt.Sprintf("\nevicted_keys:%.0f\r", gauge(t, &c, "headgate_store_evicted_keys"))
				if stats := server.Do("INFO", "stats"); !strings.Contains(stats, count) {
					t.Errorf("the metric says %q, Redis:\n%s", count, stats)
				}
			}
			fill := func(keys int) {
				server.Do("EVAL", `for i = 1, ARGV[1] do redis.call('SET', 'k' .. redis.call('INCR', 'n') % 100000, string.rep('x', 200), 'PX', 3600000) end`, "0", fmt.Sprint(keys))
			}
			look()
			fill(2000)
			look()
			expect(0, 0, false)
			server.Do("CONFIG", "SET", "maxmemory-policy", policy)
			look()
			expect(1, 0, false)
			server.Do("CONFIG", "SET", "maxmemory", "2mb")
			for strings.Contains(server.Do("INFO", "stats"), "evicted_keys:0\r") {
				fill(1000)
			}
			if !s.evicting(t.Context()) {
				t.Error("evictions are noticed only at the next look")
			}
			look()
			expect(1, 1, true)
			look()
			look()
			expect(1, 1, false)
			if !strings.Contains(log.String(), "maxmemory_policy="+policy) || !strings.Contains(log.String(), "set maxmemory-policy noeviction") {
				t.Errorf("no advice:\n%s", log.String())
			}
			s.health = health{} // a process that starts now
			look()
			if s.evicting(t.Context()) {
				t.Error("what was evicted before the start counts as evicted now")
			}
		})
	}
}

// gauge returns the value of a metric without labels.
func gauge(t *testing.T, c *metrics.Asked, name string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("no metric " + name)
	return 0
}
