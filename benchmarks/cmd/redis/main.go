// Command redis compares the Redis store with redis_rate and with a bare EVALSHA, on a server
// that it starts: decisions per second, latency, and processor time of the server. The
// limiters take turns in every round, and the figures are medians over the rounds.
//
//	go run ./cmd/redis --rounds 5
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/benchmarks/measure"
	"github.com/headgate/headgate/benchmarks/process"
)

func main() {
	rounds := flag.Int("rounds", 5, "number of rounds")
	long := flag.Duration("for", time.Second, "how long each limiter runs in a round")
	asJSON := flag.Bool("json", false, "print JSON")
	only := flag.String("only", "", "comma-separated names of the limiters to run")
	flag.Parse()
	process.Main(func(ctx context.Context) error { return run(ctx, *rounds, *long, *asJSON, *only) })
}

// keys is the number of keys, used at random.
const keys = 100_000

// result is one limiter with a number of callers.
type result struct {
	Limiter string `json:"limiter"`
	Callers int    `json:"callers"`
	// PerSecond is decisions per second, P50 and P99 their latency.
	PerSecond float64       `json:"per_second"`
	P50       time.Duration `json:"p50_ns"`
	P99       time.Duration `json:"p99_ns"`
	// ServerCPU is the server's CPU time per million decisions, in seconds.
	ServerCPU float64 `json:"server_cpu_seconds_per_million"`
	Allocs    float64 `json:"allocs_per_decision"`
}

func run(ctx context.Context, rounds int, long time.Duration, asJSON bool, only string) error {
	g := process.NewGroup(ctx)
	defer g.Stop()
	server := g.Redis()
	if g.Err != nil {
		return g.Err
	}
	limiters, err := limiters(server.Address(), only)
	if err != nil {
		return err
	}
	var results []result
	for _, callers := range []int{1, 16, 128} {
		samples := make([][]result, len(limiters))
		for range rounds {
			for i, l := range limiters {
				r, err := load(server, l, callers, long)
				if err != nil {
					return fmt.Errorf("%s: %w", l.name, err)
				}
				samples[i] = append(samples[i], r)
			}
		}
		for _, s := range samples {
			results = append(results, median(s))
		}
	}
	if asJSON {
		return json.NewEncoder(os.Stdout).Encode(results)
	}
	fmt.Println("| limiter | callers | decisions/s | p50 µs | p99 µs | server CPU s/1M | allocs |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, r := range results {
		fmt.Printf("| %s | %d | %.0f | %d | %d | %.1f | %.0f |\n",
			r.Limiter, r.Callers, r.PerSecond, r.P50.Microseconds(), r.P99.Microseconds(), r.ServerCPU, r.Allocs)
	}
	return nil
}

// load runs l with a number of callers for a time.
func load(server *process.Server, l limiter, callers int, long time.Duration) (result, error) {
	var stop atomic.Bool
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, err := server.CPU()
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	var group sync.WaitGroup
	latencies, errs := make([][]time.Duration, callers), make([]error, callers)
	for caller := range callers {
		group.Go(func() { latencies[caller], errs[caller] = ask(l, uint64(caller), &stop) })
	}
	time.Sleep(long)
	stop.Store(true)
	group.Wait()
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	used, err := server.CPU()
	all := slices.Sorted(slices.Values(slices.Concat(latencies...)))
	n := len(all)
	if err = errors.Join(append(errs, err)...); err != nil || n == 0 {
		return result{}, fmt.Errorf("%d decisions: %w", n, err)
	}
	return result{
		Limiter: l.name, Callers: callers, PerSecond: float64(n) / took.Seconds(),
		P50: all[n/2], P99: all[n*99/100],
		ServerCPU: (used - cpu) / float64(n) * 1e6,
		Allocs:    float64(after.Mallocs-before.Mallocs) / float64(n),
	}, nil
}

// ask requests random keys until stopped.
func ask(l limiter, seed uint64, stop *atomic.Bool) ([]time.Duration, error) {
	latencies := make([]time.Duration, 0, 1<<18)
	ctx := context.Background()
	random := rand.New(rand.NewPCG(seed, 1))
	for !stop.Load() {
		began := time.Now()
		if err := l.take(ctx, names[random.IntN(keys)]); err != nil {
			return latencies, err
		}
		latencies = append(latencies, time.Since(began))
	}
	return latencies, nil
}

// median takes the median of each figure.
func median(samples []result) result {
	middle := samples[0]
	middle.PerSecond = measure.Median(samples, func(r result) float64 { return r.PerSecond })
	middle.P50 = measure.Median(samples, func(r result) time.Duration { return r.P50 })
	middle.P99 = measure.Median(samples, func(r result) time.Duration { return r.P99 })
	middle.ServerCPU = measure.Median(samples, func(r result) float64 { return r.ServerCPU })
	middle.Allocs = measure.Median(samples, func(r result) float64 { return r.Allocs })
	return middle
}
