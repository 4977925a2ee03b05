// Command doors compares each door with its floor: the least that a server of that protocol
// can do.
//
//	go run ./cmd/doors [--rounds 9] [--requests 100000] [--connections 64]
//
// All servers are separate processes on this machine, measured in turns. It compares processor
// time, not throughput, because the load shares the machine. A wrong answer of a door ends the
// run.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/benchmarks/measure"
	"github.com/headgate/headgate/benchmarks/process"
)

func main() {
	process.Main(func(ctx context.Context) error {
		if len(os.Args) > 3 && os.Args[1] == "floor" {
			return serveFloor(os.Args[2:])
		}
		var p plan
		flag.IntVar(&p.rounds, "rounds", 9, "number of rounds; each measures every door once")
		flag.IntVar(&p.requests, "requests", 100_000, "requests per measurement")
		flag.IntVar(&p.connections, "connections", 64, "number of connections")
		only := flag.String("only", "", "measure only doors whose name contains this text")
		flag.Parse()
		return run(ctx, os.Stdout, *only, p)
	})
}

// plan is how much to measure.
type plan struct{ rounds, requests, connections int }

// run measures all doors whose name contains only, and writes the table.
func run(ctx context.Context, out io.Writer, only string, p plan) error {
	g := process.NewGroup(ctx)
	defer g.Stop()
	doors, err := start(g)
	if err != nil {
		return err
	}
	doors = slices.DeleteFunc(doors, func(d *door) bool { return !strings.Contains(d.name, only) })
	for round := range p.rounds + 1 {
		if err := p.round(ctx, round, doors); err != nil {
			if round > 1 { // complete rounds are still useful
				_ = report(out, doors, plan{rounds: round - 1, requests: p.requests, connections: p.connections})
			}
			return err
		}
	}
	return report(out, doors, p)
}

// round measures all doors once. Round 0 is a warm-up and does not count.
func (p plan) round(ctx context.Context, round int, doors []*door) error {
	n := p.requests
	if round == 0 {
		n /= 5
	}
	for _, d := range doors {
		floor, err := d.floor.measure(ctx, n, p.connections)
		if err != nil {
			return fmt.Errorf("%s, floor: %w", d.name, err)
		}
		cost, err := d.door.measure(ctx, n, p.connections)
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		if round > 0 {
			d.floor.samples, d.door.samples = append(d.floor.samples, floor), append(d.door.samples, cost)
		}
	}
	return nil
}

// door is one comparison.
type door struct {
	name        string
	goal        float64 // most processor time, as a multiple of the floor's
	floor, door side
}

// ratios returns the door's time divided by its floor's, for each round.
func (d *door) ratios() []float64 {
	list := make([]float64, len(d.door.samples))
	for i := range list {
		list[i] = d.door.samples[i] / d.floor.samples[i]
	}
	return list
}

func report(out io.Writer, doors []*door, p plan) error {
	fmt.Fprintf(out, "%s, %d CPUs, %s; load average %s\n", measure.Processor(), runtime.NumCPU(), runtime.Version(), loadAverage())
	fmt.Fprintf(out, "%s; %d rounds of %d requests on %d connections\n\n", time.Now().UTC().Format(time.DateOnly), p.rounds, p.requests, p.connections)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "| door\t| floor s/1M\t| door s/1M\t| times the floor\t| best runs\t| goal\t|")
	fmt.Fprintln(w, "| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t|")
	median := func(list []float64) float64 { return measure.Median(list, func(x float64) float64 { return x }) }
	for _, d := range doors {
		r := d.ratios()
		fmt.Fprintf(w, "| %s\t| %.2f\t| %.2f\t| %.2f (%.2f–%.2f)\t| %.2f\t| ≤ %.2f\t|\n", d.name, median(d.floor.samples), median(d.door.samples),
			median(r), slices.Min(r), slices.Max(r), slices.Min(d.door.samples)/slices.Min(d.floor.samples), d.goal)
	}
	return w.Flush()
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
