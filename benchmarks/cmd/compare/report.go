package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/headgate/headgate/benchmarks/measure"
	"github.com/headgate/headgate/benchmarks/subject"
	"github.com/headgate/headgate/benchmarks/workload"
)

// The goals: at most this share of the best rival's time or memory, and at least this speedup
// from one core to two.
const (
	hotGoal     = 0.65
	manyGoal    = 0.4
	memoryGoal  = 0.5
	scalingGoal = 1.5
)

// report is the result of a comparison.
type report struct {
	Machine string              `json:"machine"`
	Rounds  int                 `json:"rounds"`
	Keys    int                 `json:"keys"`
	Rows    []reportRow         `json:"rows"`
	Goals   []goal              `json:"goals"`
	Samples map[string][]sample `json:"samples"`
}

// reportRow is one measured quantity with every library's figures.
type reportRow struct {
	Name  string               `json:"name"`
	Unit  string               `json:"unit"`
	Cells map[string]spread    `json:"cells"`
	each  map[string][]float64 // the value of every round, by library
}

// spread is the median of the rounds, with minimum and maximum.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// goal is a promised ratio.
type goal struct {
	Name  string  `json:"name"`
	Rival string  `json:"rival"`
	Ratio spread  `json:"ratio"`
	Bound float64 `json:"bound"`
	// AtLeast: the ratio must be Bound or more, not less.
	AtLeast bool `json:"at_least"`
	Met     bool `json:"met"`
}

func newReport(o options, samples map[string][]sample) *report {
	r := &report{Machine: machine(), Rounds: o.rounds, Keys: o.keys, Samples: samples}
	uniform, own := 0, map[int]int{} // rows of own keys, by number of cores
	for i, w := range workload.All(o.keys) {
		row := r.add(fmt.Sprintf("%s, %s", w.Name, cores(w.Cores)), "ns/op", func(s sample) float64 { return s.Speeds[i].NsPerOp })
		switch w.Spread {
		case workload.Hot:
			r.versusRivals(row, hotGoal)
		case workload.Uniform, workload.Zipf:
			r.versusRivals(row, manyGoal)
		case workload.Own:
			own[w.Cores] = i
		}
		if w.Spread == workload.Uniform && w.Cores == 1 {
			uniform = i
		}
	}
	row := r.add("heap per live key", "bytes", func(s sample) float64 { return s.Memory.BytesPerKey })
	r.versusRivals(row, memoryGoal)
	r.add("first request of a key", "ns/op", func(s sample) float64 { return s.Memory.NsPerNewKey })
	r.add("full GC, all keys live", "ms", func(s sample) float64 { return s.Memory.GCMillis })
	r.add("allocations, many keys", "per op", func(s sample) float64 { return s.Speeds[uniform].AllocsPerOp })
	row = r.add("throughput on separate keys, 2 cores against 1", "times", func(s sample) float64 {
		return s.Speeds[own[1]].NsPerOp / s.Speeds[own[2]].NsPerOp
	})
	r.Goals = append(r.Goals, newGoal(row.Name, "itself on 1 core", row.each[subject.Ours], scalingGoal, true))
	return r
}

func cores(n int) string {
	if n == 1 {
		return "1 core"
	}
	return fmt.Sprintf("%d cores", n)
}

// add adds a row with the value of each sample.
func (r *report) add(name, unit string, value func(sample) float64) reportRow {
	row := reportRow{Name: name, Unit: unit, Cells: make(map[string]spread), each: make(map[string][]float64)}
	for library, samples := range r.Samples {
		for _, s := range samples {
			row.each[library] = append(row.each[library], value(s))
		}
		row.Cells[library] = spreadOf(row.each[library])
	}
	r.Rows = append(r.Rows, row)
	return row
}

// versusRivals adds the goal that ours is at most bound times the best rival of the row. The
// ratio is taken within each round.
func (r *report) versusRivals(row reportRow, bound float64) {
	best := ""
	for _, l := range subject.All() {
		if l.Rival && (best == "" || row.Cells[l.Name].Median < row.Cells[best].Median) {
			best = l.Name
		}
	}
	r.Goals = append(r.Goals, newGoal(row.Name, best, ratios(row.each[subject.Ours], row.each[best]), bound, false))
}

func newGoal(name, rival string, ratios []float64, bound float64, atLeast bool) goal {
	g := goal{Name: name, Rival: rival, Ratio: spreadOf(ratios), Bound: bound, AtLeast: atLeast}
	if atLeast {
		g.Met = g.Ratio.Median >= bound
	} else {
		g.Met = g.Ratio.Median <= bound
	}
	return g
}

// missed returns the number of missed goals.
func (r *report) missed() int {
	n := 0
	for _, g := range r.Goals {
		if !g.Met {
			n++
		}
	}
	return n
}

func ratios(a, b []float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return out
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1]}
}

// markdown writes the tables.
func (r *report) markdown(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. %d keys in the big table; median (min-max) of %d rounds.\n\n", r.Machine, r.Keys, r.Rounds)
	libraries := subject.All()
	b.WriteString("| |")
	for _, l := range libraries {
		fmt.Fprintf(&b, " %s |", l.Name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(libraries)) + "\n")
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "| %s, %s |", row.Name, row.Unit)
		for _, l := range libraries {
			fmt.Fprintf(&b, " %s |", row.Cells[l.Name].text(r.Rounds))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n| headgate against the best rival | rival | ratio | goal | |\n|---|---|---|---|---|\n")
	for _, g := range r.Goals {
		relation, verdict := "≤", "FAIL"
		if g.AtLeast {
			relation = "≥"
		}
		if g.Met {
			verdict = "PASS"
		}
		fmt.Fprintf(&b, "| %s | %s | %.2f (%.2f-%.2f) | %s %.2f | %s |\n", g.Name, g.Rival, g.Ratio.Median, g.Ratio.Min, g.Ratio.Max, relation, g.Bound, verdict)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// text returns the spread for a table, with about three digits.
func (s spread) text(rounds int) string {
	format := "%.0f"
	if s.Median < 10 {
		format = "%.2f"
	}
	if rounds == 1 {
		return fmt.Sprintf(format, s.Median)
	}
	return fmt.Sprintf(format+" ("+format+"-"+format+")", s.Median, s.Min, s.Max)
}

// machine describes the machine and the versions.
func machine() string {
	versions := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			switch d.Path {
			case "golang.org/x/time", "github.com/throttled/throttled/v2", "github.com/sethvargo/go-limiter", "github.com/ulule/limiter/v3":
				versions += fmt.Sprintf(", %s %s", strings.TrimPrefix(d.Path, "github.com/"), d.Version)
			}
		}
	}
	return fmt.Sprintf("%s, %d cores, %s %s/%s%s", measure.Processor(), runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH, versions)
}
