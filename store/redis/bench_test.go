package redis_test

import (
	"context"
	"math"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// BenchmarkTake measures one caller; benchmarks/redis has many, and competitors.
func BenchmarkTake(b *testing.B) {
	server := redistest.Standalone(b)
	store, err := redis.New(context.Background(), redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	for _, a := range headgate.Algorithms() {
		b.Run(a.String(), func(b *testing.B) {
			op := headgate.Op{Key: "user:12345678", Scope: "api", Limit: headgate.PerSecond(1_000_000).Using(a), Cost: 1}
			b.ReportAllocs()
			b.SetParallelism(64)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := store.Take(context.Background(), op); err != nil {
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
	store := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	for _, a := range headgate.Algorithms() {
		op := headgate.Op{Key: "user:12345678", Scope: "api", Limit: headgate.PerMinute(1_000_000).Using(a), Cost: 1}
		got := math.Inf(1)
		for range 5 { // leftovers of other tests also allocate
			got = min(got, testing.AllocsPerRun(200, func() {
				if _, err := store.Take(context.Background(), op); err != nil {
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
