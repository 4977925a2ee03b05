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
	if len(os.Args) > 1 && os.Args[1] == "floor" {
		if err := process.RESPFloor(os.Args[2]); err != nil {
			fail(err)
		}
		return
	}
	rounds := flag.Int("rounds", 5, "rounds, each of which measures everything once")
	requests := flag.Int("requests", 1_000_000, "requests with 16 under way; a fifth with 1")
	connections := flag.Int("connections", 64, "connections at once")
	flag.Parse()
	if err := run(context.Background(), *rounds, *requests, *connections); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}

// subject is one command at one server.
type subject struct {
	name   string
	server *process.Server
	args   []string
	// samples, by the number of requests under way.
	samples map[int][]sample
}

// sample is one measurement.
type sample struct {
	perSecond float64
	cpu       float64 // seconds of the server per million requests
}

func run(ctx context.Context, rounds, requests, connections int) error {
	servers, err := startAll(ctx)
	defer servers.stop()
	if err != nil {
		return err
	}
	const key = "key:__rand_int__"
	subjects := []*subject{
		{name: "headgate CL.THROTTLE", server: servers.headgate, args: []string{"CL.THROTTLE", key, "1000000", "1000000", "60"}},
		{name: "headgate CL.THROTTLE, refused", server: servers.headgate, args: []string{"CL.THROTTLE", "hot", "0", "1", "86400"}},
		{name: "headgate HG.CHECK", server: servers.headgate, args: []string{"HG.CHECK", "api", "user", key}},
		{name: "redcon, empty answer", server: servers.floor, args: []string{"CL.THROTTLE", key, "1000000", "1000000", "60"}},
		{name: "redis INCR", server: servers.redis, args: []string{"INCR", key}},
		{name: "redis EVALSHA bucket", server: servers.redis, args: []string{"EVALSHA", servers.script, "1", key, "1000000", "1000000", "60"}},
	}
	for _, s := range subjects {
		s.samples = map[int][]sample{}
	}
	for range rounds {
		for _, s := range subjects {
			for _, pipeline := range []int{1, 16} {
				n := requests
				if pipeline == 1 {
					n /= 5
				}
				got, err := put(ctx, s.server, load{requests: n, pipeline: pipeline, connections: connections, args: s.args})
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				s.samples[pipeline] = append(s.samples[pipeline], got)
			}
		}
	}
	report(subjects)
	return nil
}

// report prints the medians.
func report(subjects []*subject) {
	rate := func(s *subject, p int) float64 {
		return measure.Median(s.samples[p], func(x sample) float64 { return x.perSecond })
	}
	cpu := func(s *subject, p int) float64 {
		return measure.Median(s.samples[p], func(x sample) float64 { return x.cpu })
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tP1 /s\tCPU s/1M\tP16 /s\tCPU s/1M\t")
	for _, s := range subjects {
		fmt.Fprintf(w, "%s\t%.0f\t%.2f\t%.0f\t%.2f\t\n", s.name, rate(s, 1), cpu(s, 1), rate(s, 16), cpu(s, 16))
	}
	_ = w.Flush()
	throttle, empty, incr, lua := subjects[0], subjects[3], subjects[4], subjects[5]
	fmt.Printf("\nP16: %.2f times INCR (goal 1), %.2f times the bucket in Lua (goal 4)\n",
		rate(throttle, 16)/rate(incr, 16), rate(throttle, 16)/rate(lua, 16))
	fmt.Printf("P1: %.2f times the CPU of redcon's empty answer (goal 1.3); P16: %.2f times\n",
		cpu(throttle, 1)/cpu(empty, 1), cpu(throttle, 16)/cpu(empty, 16))
}
