// Command blocks compares limits in blocks with the same limits counted exactly in Redis and
// in the process's memory: decisions per second, latency, Redis commands, and what is admitted.
//
//	go run ./cmd/blocks                  5 rounds, about 5 minutes
//	go run ./cmd/blocks --quick          1 short round, to see that it works
//	go run ./cmd/blocks --rounds 9 --json > result.json
//
// It starts a Redis of its own. The stores take turns in every round, ratios are taken within
// a round, and the figures are medians over the rounds. A measurement whose premise does not
// hold ends the run with status 1. A missed goal is printed and, with --strict, ends the run
// with status 1 too.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/headgate/headgate/benchmarks/process"
)

// options are the command-line options.
type options struct {
	rounds int
	long   time.Duration // how long each store is measured in a row
	only   string
	json   bool
	strict bool
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "number of rounds; each measures every row once")
	flag.DurationVar(&o.long, "for", time.Second, "how long each store is measured in a row")
	flag.StringVar(&o.only, "only", "", "measure only rows whose name contains this text")
	quick := flag.Bool("quick", false, "run one short round to check that everything works; its figures mean nothing")
	flag.BoolVar(&o.json, "json", false, "print every sample as JSON instead of the tables")
	flag.BoolVar(&o.strict, "strict", false, "exit with status 1 if a goal is missed")
	flag.Parse()
	if *quick {
		o.rounds, o.long = 1, quickTime
	}
	if o.rounds < 1 || o.long < quickTime || flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "error: want --rounds of at least 1, --for of at least %v, and no arguments\n", quickTime)
		os.Exit(2)
	}
	process.Main(func(ctx context.Context) error { return run(ctx, o, os.Stdout) })
}

// quickTime is the shortest time in which the premises hold.
const quickTime = 250 * time.Millisecond

// mostRetries is how often a store is measured again after a premise was not met.
const mostRetries = 2

func run(ctx context.Context, o options, out io.Writer) error {
	b, err := newBench(ctx, o.long)
	if err != nil {
		return err
	}
	defer b.close()
	var rows []row
	for _, w := range allRows() {
		if strings.Contains(w.name, o.only) {
			rows = append(rows, w)
		}
	}
	samples := make(map[string]map[string][]sample, len(rows))
	for round := range o.rounds {
		for _, w := range rows {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, o.rounds, w.name)
			for i := range w.stores {
				name := w.stores[(i+round)%len(w.stores)]
				s, err := b.measure(ctx, w, name)
				for try := 0; errors.Is(err, errPremise) && try < mostRetries; try++ {
					fmt.Fprintf(os.Stderr, "trying again: %v\n", err)
					s, err = b.measure(ctx, w, name)
				}
				if err != nil {
					return fmt.Errorf("%s, %s: %w", w.name, name, err)
				}
				if samples[w.name] == nil {
					samples[w.name] = make(map[string][]sample)
				}
				samples[w.name][name] = append(samples[w.name][name], s)
			}
		}
	}
	r := newReport(o, rows, samples)
	if o.json {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(r)
	} else {
		err = r.markdown(out)
	}
	if missed := r.missed(); err == nil && o.strict && missed > 0 {
		err = fmt.Errorf("%d goals missed", missed)
	}
	return err
}
