package redis_test

import (
	"context"
	"math"
	"regexp"
	"strconv"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// BenchmarkTake measures one caller; benchmarks/redis has many, and competitors.
func BenchmarkTake(b *testing.B) {
	server := redistest.Standalone(b)
	db, err := redis.New(context.Background(), redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for _, a := range store.Algorithms() {
		b.Run(a.String(), func(b *testing.B) {
			op := store.Op{Key: "user:12345678", Scope: "api", Rule: headgate.PerSecond(1_000_000).WithAlgorithm(a).Rule(), Cost: 1}
			b.ReportAllocs()
			b.SetParallelism(64)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := store.Execute(context.Background(), db, op); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// TestTakeAllocates: a take allocates at most four times, including the client.
func TestTakeAllocates(t *testing.T) {
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	for _, a := range store.Algorithms() {
		op := store.Op{Key: "user:12345678", Scope: "api", Rule: headgate.PerMinute(1_000_000).WithAlgorithm(a).Rule(), Cost: 1}
		got := math.Inf(1)
		for range 5 { // leftovers of other tests also allocate
			got = min(got, testing.AllocsPerRun(200, func() {
				if _, err := store.Execute(context.Background(), db, op); err != nil {
					t.Fatal(err)
				}
			}))
		}
		t.Logf("%s: %v allocations", a, got)
		if got > 4 {
			t.Errorf("%s: %v allocations, want at most 4", a, got)
		}
	}
}

// BenchmarkDistinct measures limits of distinct values, with that many values in the key:
// what is known, what is refused, and what is new.
func BenchmarkDistinct(b *testing.B) {
	server := redistest.Standalone(b)
	db, err := redis.New(context.Background(), redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	take := func(b *testing.B, op store.Op) {
		if _, err := store.Execute(context.Background(), db, op); err != nil {
			b.Fatal(err)
		}
	}
	for _, n := range []uint64{1, 20, 100, 1000, 4096, 20_000, 65_000} {
		key := strconv.FormatUint(n, 10)
		open := store.Op{Key: key, Scope: "api", Rule: headgate.PerDay(store.MaxDistinctExact).WithAlgorithm(store.Distinct).Rule(), Cost: 1}
		spread := func(i uint64) uint64 { return max(i*0x9e3779b97f4a7c15>>12, 1) }
		for i := range n {
			open.Member = spread(i)
			take(b, open)
		}
		full := open
		full.Rule = headgate.PerDay(int64(n)).WithAlgorithm(store.Distinct).Rule()
		for name, op := range map[string]store.Op{"known": open, "refused": full, "new": open} {
			b.Run(name+" of "+key, func(b *testing.B) {
				server.Do("CONFIG", "RESETSTAT")
				for i := uint64(0); b.Loop(); i++ {
					op.Member = spread(i % n)
					if name != "known" {
						op.Member = spread(n + i%500)
					}
					op.Kind = store.KindTake
					if name == "new" && i/500%2 == 1 { // or given back
						op.Kind = store.KindRefund
					}
					take(b, op)
				}
				stats := regexp.MustCompile(`cmdstat_evalsha:.*usec_per_call=([0-9.]+)`).FindStringSubmatch(server.Do("INFO", "commandstats"))
				if us, err := strconv.ParseFloat(stats[1], 64); err == nil {
					b.ReportMetric(us, "µs-in-Redis/op")
				}
			})
		}
	}
}
