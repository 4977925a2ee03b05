// Command resp compares the Redis protocol door with Redis and with an empty server, using
// redis-benchmark in interleaved rounds:
//
//	go run ./cmd/resp [--rounds 5] [--requests 1000000]
//
// It needs redis-server and redis-benchmark. The load shares the machine's processors, so
// compare figures of one run only. CPU is the processor time of the server's process.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/benchmarks/measure"
	"github.com/headgate/headgate/benchmarks/process"
)

func main() {
	process.Main(func(ctx context.Context) error {
		if len(os.Args) > 3 && os.Args[1] == "floor" {
			return process.RESPFloor(os.Args[3])
		}
		rounds := flag.Int("rounds", 5, "number of rounds; each measures every server once")
		requests := flag.Int("requests", 1_000_000, "requests per measurement at pipeline depth 16; a fifth of that at depth 1")
		connections := flag.Int("connections", 64, "number of connections")
		flag.Parse()
		return run(ctx, *rounds, *requests, *connections)
	})
}

// subject is one command on one server.
type subject struct {
	name    string
	server  *process.Server
	args    []string
	samples [2][]sample // at pipeline depth 1 and 16
}

// sample is one measurement.
type sample struct {
	perSecond float64
	cpu       float64 // processor seconds of the server per million requests
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

// bucket is a token bucket in Lua, as applications write it.
const bucket = `
local burst, count, period = tonumber(ARGV[1]) + 1, tonumber(ARGV[2]), tonumber(ARGV[3])
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local interval = period * 1000000 / count
local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)
local new = tat + interval
if new - burst * interval > now then
  return {1, burst, math.floor((burst * interval - (tat - now)) / interval), math.ceil((new - burst * interval - now) / 1000000), math.ceil((tat - now) / 1000000)}
end
redis.call('SET', KEYS[1], string.format('%.0f', new), 'PX', math.ceil((new - now) / 1000) + 1)
return {0, burst, math.floor((burst * interval - (new - now)) / interval), -1, math.ceil((new - now) / 1000000)}
`

const rules = "domain: api\nlimits:\n  - {name: user, key: [user], rate: 1000000/minute}\n"

// subjects starts the servers and returns what to measure.
func subjects(ctx context.Context, g *process.Group) ([]*subject, error) {
	headgate, floor, server := g.Door("resp", rules), g.Floor("resp"), g.Redis()
	if g.Err != nil {
		return nil, g.Err
	}
	c := redis.NewClient(&redis.Options{Addr: server.Address()})
	defer c.Close()
	script, err := c.ScriptLoad(ctx, bucket).Result()
	const key = "key:__rand_int__"
	return []*subject{
		{name: "headgate CL.THROTTLE", server: headgate, args: []string{"CL.THROTTLE", key, "1000000", "1000000", "60"}},
		{name: "headgate CL.THROTTLE, refused", server: headgate, args: []string{"CL.THROTTLE", "hot", "0", "1", "86400"}},
		{name: "headgate HG.CHECK", server: headgate, args: []string{"HG.CHECK", "api", "user", key}},
		{name: "redcon, empty answer", server: floor, args: []string{"CL.THROTTLE", key, "1000000", "1000000", "60"}},
		{name: "redis INCR", server: server, args: []string{"INCR", key}},
		{name: "redis EVALSHA bucket", server: server, args: []string{"EVALSHA", script, "1", key, "1000000", "1000000", "60"}},
	}, err
}

// load is a run of redis-benchmark.
type load struct {
	requests, pipeline, connections int
	args                            []string
}

// put runs a load on s.
func put(ctx context.Context, s *process.Server, l load) (sample, error) {
	args := append([]string{
		"-p", strconv.Itoa(s.Port), "-c", strconv.Itoa(l.connections), "-P", strconv.Itoa(l.pipeline),
		"-n", strconv.Itoa(l.requests), "-r", "100000", "-e", "--csv",
	}, l.args...)
	before, err := s.CPU()
	if err != nil {
		return sample{}, err
	}
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, "redis-benchmark", args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return sample{}, fmt.Errorf("redis-benchmark: %w\n%s", err, errs.Bytes())
	}
	after, err := s.CPU()
	if err != nil {
		return sample{}, err
	}
	// Premise: no answer was an error.
	if strings.Contains(errs.String(), "Error from server") || strings.Contains(string(out), "Error from server") {
		return sample{}, fmt.Errorf("the server answered with errors: %s%s", errs.Bytes(), out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	fields := strings.Split(lines[len(lines)-1], `","`)
	if len(fields) < 2 {
		return sample{}, fmt.Errorf("unexpected output of redis-benchmark: %q", out)
	}
	perSecond, err := strconv.ParseFloat(fields[1], 64)
	return sample{perSecond: perSecond, cpu: (after - before) / float64(l.requests) * 1e6}, err
}
