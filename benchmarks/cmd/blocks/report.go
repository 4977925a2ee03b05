package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/benchmarks/measure"
	"github.com/headgate/headgate/store"
)

// report is the result of all rounds.
type report struct {
	Machine string                         `json:"machine"`
	Rounds  int                            `json:"rounds"`
	For     string                         `json:"for"`
	Samples map[string]map[string][]sample `json:"samples"` // by row and store
	Goals   []goal                         `json:"goals"`
	rows    []row
}

// goal is a figure to reach: a ratio of two stores in a row, or a figure of blocks alone.
type goal struct {
	Name    string  `json:"name"`
	Median  float64 `json:"median"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Bound   float64 `json:"goal"`
	AtLeast bool    `json:"at_least"` // the figure must be Bound or more, not less
	Met     bool    `json:"met"`
}

// aim says how a goal is computed.
type aim struct {
	row, name string
	versus    string // what blocks are divided by, or empty
	of        func(sample) float64
	bound     float64
	atLeast   bool
}

func nsPerOp(s sample) float64   { return s.NsPerOp }
func perSecond(s sample) float64 { return s.PerSecond }
func commands(s sample) float64  { return s.Commands }
func serverCPU(s sample) float64 { return s.ServerCPU }
func passed(s sample) float64    { return s.Passed }

// aims are the goals. Allocations are rounded, as those of the measurement count too.
func aims() []aim {
	log := saturatedLog().Rule().InBlocks(store.Blocks{MaxAge: age, MaxOver: usualOver})
	return []aim{
		{"hot key, 1 caller", "time of a decision, blocks to memory", inMemory, nsPerOp, 1.5, false},
		{"hot key, 128 callers", "decisions a second, blocks to exact", exact, perSecond, 20, true},
		{ruleRow, "commands, blocks to exact", exact, commands, 0.02, false},
		{ruleRow, "processor time of Redis, blocks to exact", exact, serverCPU, 0.02, false},
		{ruleRow25, "processor time of Redis, blocks to exact", exact, serverCPU, 0.02, false},
		{ruleRow100, "processor time of Redis, blocks to exact", exact, serverCPU, 0.02, false},
		{"100,000 cold keys, 16 callers", "decisions a second, blocks to exact", exact, perSecond, 0.97, true},
		{"100,000 keys by Zipf's law, 20,000/s", "commands, as many times as expected", "", func(s sample) float64 { return s.Commands / s.Expected }, 1.3, false},
		{"hot window, 5 ms away, 10,000/s", "p99, blocks to exact", exact, func(s sample) float64 { return float64(s.P99) }, 0.1, false},
		{"hot window, Redis stalls for 200 ms", "decisions without an answer", "", func(s sample) float64 { return float64(s.Degraded) }, 0, false},
		{"hot key, 16 callers", "allocations", "", func(s sample) float64 { return float64(int(s.Allocs * 100)) }, 0, false},
		{"saturated bucket, 4 nodes", "passed, blocks to exact", exact, passed, 0.98, true},
		{"saturated log, 4 nodes", "passed, blocks to exact", exact, passed, float64(log.Period) / float64(log.Period+log.Age), true},
		{"saturated bucket, 4 nodes", "passed above the limit, to the bound", "", func(s sample) float64 { return max(s.Excess, 0) / s.Bound }, 1, false},
		{"window of 50,000 used up, 2 nodes", "commands for each that passed, blocks to exact", exact, func(s sample) float64 { return s.Commands / s.Share }, 0.05, false},
	}
}

func newReport(o options, rows []row, samples map[string]map[string][]sample) *report {
	r := &report{
		Machine: fmt.Sprintf("%s, %d cores, %s", measure.Processor(), runtime.NumCPU(), runtime.Version()),
		Rounds:  o.rounds, For: o.long.String(), Samples: samples, rows: rows,
	}
	for _, a := range aims() {
		if of := samples[a.row]; of != nil {
			r.Goals = append(r.Goals, a.goal(of))
		}
	}
	return r
}

// goal computes the goal from the samples of its row, round by round.
func (a *aim) goal(of map[string][]sample) goal {
	var values []float64
	for i, s := range of[inBlocks] {
		v := a.of(s)
		if a.versus != "" {
			v /= a.of(of[a.versus][i])
		}
		values = append(values, v)
	}
	g := goal{
		Name: a.row + ": " + a.name, Bound: a.bound, AtLeast: a.atLeast,
		Median: measure.Median(values, func(v float64) float64 { return v }), Min: slices.Min(values), Max: slices.Max(values),
	}
	g.Met = g.Median <= g.Bound
	if g.AtLeast {
		g.Met = g.Median >= g.Bound
	}
	return g
}

// missed returns the number of missed goals.
func (r *report) missed() (n int) {
	for _, g := range r.Goals {
		if !g.Met {
			n++
		}
	}
	return n
}

// markdown writes the tables.
func (r *report) markdown(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. Medians of %d rounds of %s.\n\n", r.Machine, r.Rounds, r.For)
	b.WriteString("| | store | decisions/s | p50 | p99 | commands a decision | Redis CPU s/1M | allowed | allocs |\n")
	b.WriteString("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, w := range r.rows {
		for _, name := range w.stores {
			of := func(f func(sample) float64) float64 { return measure.Median(r.Samples[w.name][name], f) }
			latency := func(f func(sample) time.Duration) time.Duration {
				return measure.Median(r.Samples[w.name][name], f).Round(10 * time.Nanosecond)
			}
			fmt.Fprintf(&b, "| %s | %s | %.0f | %v | %v | %.5f | %.2f | %.2f%% | %.2f |\n", w.name, name, of(perSecond),
				latency(func(s sample) time.Duration { return s.P50 }), latency(func(s sample) time.Duration { return s.P99 }),
				of(commands), of(serverCPU), 100*of(func(s sample) float64 { return s.Share }), of(func(s sample) float64 { return s.Allocs }))
		}
	}
	b.WriteString("\n| | median (min–max) | goal | |\n| --- | ---: | ---: | --- |\n")
	for _, g := range r.Goals {
		relation, verdict := "≤", "FAIL"
		if g.AtLeast {
			relation = "≥"
		}
		if g.Met {
			verdict = "PASS"
		}
		fmt.Fprintf(&b, "| %s | %.4g (%.4g–%.4g) | %s %.3g | %s |\n", g.Name, g.Median, g.Min, g.Max, relation, g.Bound, verdict)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
