//go:build !race

package memory

import (
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// TestBytesOfLists measures the figures in docs/run/memory-store.md: by how much the heap
// has grown, after a collection, once 10,000 users have used their whole limit at random
// times, keys and the store's fixed part included.
func TestBytesOfLists(t *testing.T) {
	const users, mb = 10_000, 1e6
	for _, tt := range []struct {
		name  string
		limit headgate.Limit
		goal  float64 // MB
		long  bool
	}{
		{"60 sub-windows", headgate.Per(500, time.Hour).WithAlgorithm(store.SlidingBuckets), 3.6, false},
		{"a log of 500 in an hour", headgate.Per(500, time.Hour).WithAlgorithm(store.SlidingLog), 20, false},
		{"a log of 500 in a day", headgate.Per(500, 24*time.Hour).WithAlgorithm(store.SlidingLog), 23.5, true},
	} {
		if tt.long && testing.Short() {
			continue
		}
		keys := make([]string, users)
		var buf [32]byte
		for i := range keys {
			keys[i] = string(key(buf[:], uint64(i)))
		}
		before := heapInUse()
		s := New()
		now := fill(t, s, tt.limit, keys)
		s.Sweep(time.UnixMicro(now))
		measured, n := float64(heapInUse()-before)/mb, s.Stats()
		t.Logf("%-24s %5.2f MB on the heap, %5.2f MB counted", tt.name, measured, float64(n.Bytes)/mb)
		if n.Keys != users {
			t.Fatalf("%s: %+v", tt.name, n)
		}
		if measured > tt.goal {
			t.Errorf("%s: %.2f MB, want at most %.1f", tt.name, measured, tt.goal)
		}
		// The rest is the fixed part of the shards and what the allocator rounds up.
		if counted := float64(n.Bytes) / mb; math.Abs(measured-counted) > 1.5 {
			t.Errorf("%s: the store counts %.2f MB of %.2f", tt.name, counted, measured)
		}
	}
}

// fill lets each key use its whole limit at random times within the period, and returns
// the time of the last.
func fill(t testing.TB, s *Store, limit headgate.Limit, keys []string) int64 {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	period, now := limit.Rule().Period, int64(0)
	for step := range limit.N() {
		for _, key := range keys {
			at := t0 + (step*period+rng.Int64N(period))/limit.N()
			now = max(now, at)
			if d, err := store.Execute(t.Context(), s, store.Op{Key: key, Rule: limit.Rule(), Cost: 1, At: at}); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
	}
	return now
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
