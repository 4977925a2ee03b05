// Command resp compares the door of the Redis protocol with Redis itself and
// with an empty server, under redis-benchmark, in interleaved rounds:
//
//	go run ./cmd/resp [--rounds 5] [--requests 1000000]
//
// It needs redis-server and redis-benchmark. All run on this machine, and the
// load shares its processors, so compare within one run only. CPU is that of
// the server's process.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/headgate/headgate/benchmarks/measure"
	"github.com/headgate/headgate/benchmarks/process"
)

func main() {
	process.Main(func(ctx context.Context) error {
		if len(os.Args) > 3 && os.Args[1] == "floor" {
			return process.RESPFloor(os.Args[3])
		}
		rounds := flag.Int("rounds", 5, "rounds, each of which measures everything once")
		requests := flag.Int("requests", 1_000_000, "requests with 16 under way; a fifth with 1")
		connections := flag.Int("connections", 64, "connections at once")
		flag.Parse()
		return run(ctx, *rounds, *requests, *connections)
	})
}

// subject is one command at one server.
type subject struct {
	name    string
	server  *process.Server
	args    []string
	samples [2][]sample // with 1 and with 16 requests under way
}

// sample is one measurement.
type sample struct {
	perSecond float64
	cpu       float64 // seconds of the server per million requests
}

func run(ctx context.Context, rounds, requests, connections int) error {
	g := process.NewGroup(ctx)
	defer g.Stop()
	all, err := subjects(ctx, g)
	if err != nil {
		return err
	}
	for range rounds {
		for _, s := range all {
			for i, pipeline := range []int{1, 16} {
				n := requests
				if pipeline == 1 {
					n /= 5
				}
				got, err := put(ctx, s.server, load{requests: n, pipeline: pipeline, connections: connections, args: s.args})
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				s.samples[i] = append(s.samples[i], got)
			}
		}
	}
	report(all)
	return nil
}

// report prints the medians.
func report(subjects []*subject) {
	rate := func(s *subject, i int) float64 {
		return measure.Median(s.samples[i], func(x sample) float64 { return x.perSecond })
	}
	cpu := func(s *subject, i int) float64 {
		return measure.Median(s.samples[i], func(x sample) float64 { return x.cpu })
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tP1 /s\tCPU s/1M\tP16 /s\tCPU s/1M\t")
	for _, s := range subjects {
		fmt.Fprintf(w, "%s\t%.0f\t%.2f\t%.0f\t%.2f\t\n", s.name, rate(s, 0), cpu(s, 0), rate(s, 1), cpu(s, 1))
	}
	_ = w.Flush()
	throttle, empty, incr, lua := subjects[0], subjects[3], subjects[4], subjects[5]
	fmt.Printf("\nP16: %.2f times INCR (goal 1), %.2f times the bucket in Lua (goal 4)\n",
		rate(throttle, 1)/rate(incr, 1), rate(throttle, 1)/rate(lua, 1))
	fmt.Printf("P1: %.2f times the CPU of redcon's empty answer (goal 1.3); P16: %.2f times\n",
		cpu(throttle, 0)/cpu(empty, 0), cpu(throttle, 1)/cpu(empty, 1))
}
