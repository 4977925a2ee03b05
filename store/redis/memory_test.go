package redis_test

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

type memoryCase struct {
	name  string
	limit headgate.Limit
	// takes of cost 1, pause apart; without a pause, on the server's clock.
	takes int
	pause time.Duration
	// goal is the most bytes per key.
	goal int64
}

// TestMemoryPerKey measures the numbers in docs/run/redis.md: the growth of the server's
// used memory per key, including its time to live and its share of the tables, for keys
// with names of 37 bytes.
func TestMemoryPerKey(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("fills a server")
	}
	hour := time.Hour
	cases := []memoryCase{
		{"token_bucket", headgate.Per(100, hour), 1, 0, 181},
		{"leaky_bucket", headgate.Per(100, hour).WithAlgorithm(store.LeakyBucket), 1, 0, 181},
		{"fixed_window", headgate.Per(100, hour).WithAlgorithm(store.FixedWindow), 3, 0, 133},
		{"fixed_window, 1000 requests", headgate.Per(1000, hour).WithAlgorithm(store.FixedWindow), 1000, 0, 149},
		{"fixed_window, calendar day", headgate.PerCalendar(100, store.Day, time.UTC), 3, 0, 133},
		{"fixed_window, first request", headgate.Per(100, hour).WithAlgorithm(store.FixedWindow).WithAnchor(store.AnchorFirstRequest), 1, 0, 181},
		{"sliding_window", headgate.Per(100, hour).WithAlgorithm(store.SlidingWindow), 1, 0, 165},
		{"sliding_buckets of 60", headgate.Per(500, hour).WithAlgorithm(store.SlidingBuckets), 90, time.Minute, 330},
		{"sliding_log, 1 entry", headgate.Per(100, hour).WithAlgorithm(store.SlidingLog), 1, 0, 260},
		{"sliding_log, 500 entries", headgate.Per(500, hour).WithAlgorithm(store.SlidingLog), 500, 7 * time.Second, 4300},
		{"sliding_log, 100 entries", headgate.Per(100, hour).WithAlgorithm(store.SlidingLog), 100, time.Second, 1229},
	}
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient, CallerTime: true}) // uses Op.At
	fill := func(c *memoryCase, keys int) {
		takes, cost := c.takes, int64(1)
		if c.pause == 0 {
			takes, cost = 1, int64(c.takes)
		}
		for step := range takes {
			ops := make([]store.Op, keys)
			for i := range ops {
				ops[i] = store.Op{Key: fmt.Sprintf("user:%012d", i), Scope: "api/v1/login", Rule: c.limit.Rule(), Cost: cost}
				if c.pause > 0 {
					ops[i].At = time.Date(2026, 1, 1, 12, 0, 1, 0, time.UTC).Add(time.Duration(step) * c.pause).UnixMicro()
				}
			}
			if n := len(redis.KeyOf("hg", &ops[0])); n != 37 {
				t.Fatalf("the key has %d bytes", n)
			}
			if err := store.ExecuteAll(context.Background(), db, ops, make([]store.Decision, keys), store.Independent); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range cases {
		// The tables are as full as with 100,000 keys: neither just grown nor about to
		// grow.
		keys := 6_250
		if c.pause > 0 {
			keys = 390
		}
		// Background work of the server only adds memory, so use the minimum of a few
		// measurements.
		each := int64(math.MaxInt64)
		for round := 0; round < 3 && each > c.goal; round++ {
			fill(&c, keys)
			full := usedMemory(t, server)
			server.Do("FLUSHALL", "SYNC")
			each = min(each, (full-usedMemory(t, server))/int64(keys))
		}
		t.Logf("%-28s %4d bytes a key (goal %d)", c.name, each, c.goal)
		if each > c.goal {
			t.Errorf("%s: %d bytes a key, goal %d", c.name, each, c.goal)
		}
	}
}

// usedMemory returns the server's used memory without the clients' buffers, which vary.
func usedMemory(t *testing.T, server *redistest.Server) int64 {
	t.Helper()
	values := map[string]int64{}
	for line := range strings.Lines(server.Do("INFO", "memory")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			values[name] = n
		}
	}
	if values["used_memory"] == 0 {
		t.Fatal("no used_memory")
	}
	return values["used_memory"] - values["mem_clients_normal"] - values["used_memory_vm_eval"] - values["used_memory_scripts_eval"]
}
