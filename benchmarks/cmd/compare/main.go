// Command compare measures Headgate and other in-memory limiters on this machine, and reports
// whether Headgate meets its goals.
//
//	go run ./cmd/compare                 5 rounds, about 6 minutes
//	go run ./cmd/compare --quick         1 short round, to see that it works
//	go run ./cmd/compare --rounds 9 --json > result.json
//
// In every round each library runs in a separate process, and the libraries take turns, so
// that a slow minute of the machine affects all of them. A measurement whose premise does not
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
	"os/exec"
	"time"

	"github.com/headgate/headgate/benchmarks/measure"
	"github.com/headgate/headgate/benchmarks/process"
	"github.com/headgate/headgate/benchmarks/subject"
	"github.com/headgate/headgate/benchmarks/workload"
)

// options are the command-line options.
type options struct {
	rounds  int
	rowTime time.Duration
	keys    int
	json    bool
	strict  bool
	worker  string // in a child process: the library to measure
}

// sample is the result of one process.
type sample struct {
	Library string          `json:"library"`
	Speeds  []measure.Speed `json:"speeds"`
	Memory  measure.Memory  `json:"memory"`
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "number of rounds; each measures every library once")
	flag.DurationVar(&o.rowTime, "time", 800*time.Millisecond, "how long each row is measured")
	flag.IntVar(&o.keys, "keys", 1_000_000, "number of keys in the big table")
	quick := flag.Bool("quick", false, "run one short round to check that everything works; its figures mean nothing")
	flag.BoolVar(&o.json, "json", false, "print every sample as JSON instead of the table")
	flag.BoolVar(&o.strict, "strict", false, "exit with status 1 if a goal is missed")
	flag.StringVar(&o.worker, "worker", "", "measure this library and print JSON; for internal use")
	flag.Parse()
	if *quick && o.worker == "" {
		o.rounds, o.rowTime = 1, 100*time.Millisecond
	}
	if o.rounds < 1 || o.keys < 1000 || o.rowTime <= 0 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "error: want --rounds of at least 1, --keys of at least 1000, --time above 0, and no arguments")
		os.Exit(2)
	}
	process.Main(func(ctx context.Context) error { return run(ctx, o, os.Stdout) })
}

func run(ctx context.Context, o options, out io.Writer) error {
	if o.worker != "" {
		return work(o, out)
	}
	samples, err := rounds(ctx, o)
	if err != nil {
		return err
	}
	r := newReport(o, samples)
	if o.json {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(r)
	} else {
		err = r.markdown(out)
	}
	if err == nil && o.strict && r.missed() > 0 {
		err = fmt.Errorf("%d goals missed", r.missed())
	}
	return err
}

// work is the child process: it measures one library once.
func work(o options, out io.Writer) error {
	library, err := subject.Named(o.worker)
	if err != nil {
		return err
	}
	s := sample{Library: library.Name}
	// Memory first, while the heap is empty.
	if s.Memory, err = measure.TableMemory(library, o.keys); err != nil {
		return err
	}
	for _, w := range workload.All(o.keys) {
		speed, err := row(library, w, o.rowTime)
		if err != nil {
			return err
		}
		s.Speeds = append(s.Speeds, speed)
	}
	return json.NewEncoder(out).Encode(s)
}

func row(library subject.Library, w workload.Workload, duration time.Duration) (speed measure.Speed, err error) {
	r, err := measure.NewRun(library, w)
	if err != nil {
		return speed, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	// Warm up caches, branch predictors and the scheduler.
	if _, err := r.Times(50_000); err != nil {
		return speed, err
	}
	return r.For(duration)
}

// rounds measures all libraries in turns, a process for each measurement.
func rounds(ctx context.Context, o options) (map[string][]sample, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	libraries := subject.All()
	samples := make(map[string][]sample, len(libraries))
	for round := range o.rounds {
		for i := range libraries {
			name := libraries[(i+round)%len(libraries)].Name
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, o.rounds, name)
			s, err := measured(ctx, self, name, o)
			for try := 0; err != nil && ctx.Err() == nil && try < mostRetries; try++ {
				fmt.Fprintf(os.Stderr, "trying again: %v\n", err)
				s, err = measured(ctx, self, name, o)
			}
			if err != nil {
				return nil, err
			}
			samples[name] = append(samples[name], s)
		}
	}
	return samples, nil
}

// mostRetries is how often a library is measured again after its premise was not met.
// throttled's compare-and-swap sometimes gives up under contention.
const mostRetries = 2

// measured measures a library in a separate process.
func measured(ctx context.Context, self, name string, o options) (s sample, err error) {
	command := exec.CommandContext(ctx, self, "--worker", name, "--time", o.rowTime.String(), "--keys", fmt.Sprint(o.keys))
	command.Stderr = os.Stderr
	text, err := command.Output()
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}
