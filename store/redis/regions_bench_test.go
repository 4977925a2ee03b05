package redis_test

import (
	"context"
	"slices"
	"strconv"
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

// BenchmarkRegions compares what a decision takes in a region that has peers 80 ms away
// with the same in a region alone, for 64 callers in this process, in pairs of short
// rounds, so that both have the same machine. Its premise is that tokens are given all
// the time, and that about as much is refused by both. With 20 pairs and more (-benchtime 40x) it fails if the 99th percentile of a
// region with peers is more than 1.1 times that of the other one, in the median of pairs.
func BenchmarkRegions(b *testing.B) {
	const keys = 40
	eu, us := redistest.Standalone(b), redistest.Standalone(b)
	at := func(s *redistest.Server) redis.Options {
		return redis.Options{Addresses: []string{s.Addr}, Timeout: time.Second}
	}
	far := func(s *redistest.Server) redis.Options {
		p := redistest.NewProxy(b, s.Addr)
		p.Delay(80 * time.Millisecond)
		return at(&redistest.Server{Addr: p.Addr})
	}
	shared := newRegion(b, "eu", at(eu), map[string]redis.Options{"us": far(us)})
	other := newRegion(b, "us", at(us), map[string]redis.Options{"eu": far(eu)})
	alone, err := redis.New(b.Context(), at(redistest.Standalone(b)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = alone.Close() })
	plain := headgate.PerSecond(1600).WithAlgorithm(store.FixedWindow)
	limit := headgate.LimitOf(plain.Rule().InRegions(store.Regions{}))
	round := func(s store.Store, l headgate.Limit) (p99 time.Duration, refused float64) {
		var all sync.WaitGroup
		var no atomic.Int64
		took := make([][]time.Duration, 64)
		end := time.Now().Add(250 * time.Millisecond)
		for i := range took {
			all.Go(func() {
				for n := i; time.Now().Before(end); n++ {
					began := time.Now()
					d, err := store.Execute(context.Background(), s, store.Op{Key: "k" + strconv.Itoa(n%keys), Rule: l.Rule(), Cost: 1})
					if err != nil {
						b.Error(err)
						return
					}
					if !d.Allowed {
						no.Add(1)
					}
					took[i] = append(took[i], time.Since(began))
				}
			})
		}
		all.Wait()
		sorted := slices.Concat(took...)
		slices.Sort(sorted)
		return sorted[len(sorted)*99/100], float64(no.Load()) / float64(len(sorted))
	}
	round(alone, plain)
	round(shared, limit)
	round(other, limit) // us uses a little, too
	var with, without, ratios, refused []float64
	for b.Loop() {
		w, yes := round(shared, limit)
		o, no := round(alone, plain)
		with, without = append(with, float64(w.Microseconds())), append(without, float64(o.Microseconds()))
		ratios, refused = append(ratios, float64(w)/float64(o)), append(refused, yes-no)
	}
	b.ReportMetric(median(with), "p99-µs-with-peers")
	b.ReportMetric(median(without), "p99-µs-alone")
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(median(refused), "refused-more")
	switch n := len(ratios); {
	case n < 20:
	case received(shared) < int64(n)*keys || median(refused) > 0.1 || median(refused) < -0.1:
		b.Errorf("the premise is wrong: %d tokens were received, and %.2f more refused", received(shared), median(refused))
	case median(ratios) > 1.1:
		b.Errorf("the 99th percentile with peers is %.2f times that of a region alone", median(ratios))
	}
}

func received(s *regions.Store) int64 { return s.Stats()[0].Received }

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}
