// Package benchmarks compares Headgate with other limiters that keep their state in the
// process. It is a separate module, so that users of the library do not depend on the others.
//
// The command in cmd/compare makes the comparison, with each library in a separate process.
// The benchmarks here run the same workloads, for a profile or for benchstat.
package benchmarks_test

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/benchmarks/measure"
	"github.com/headgate/headgate/benchmarks/subject"
	"github.com/headgate/headgate/benchmarks/workload"
)

// leastOps is the fewest requests that show whether a premise holds.
const leastOps = 20_000

func BenchmarkTake(b *testing.B) {
	keys := 1_000_000
	if testing.Short() {
		keys = 50_000
	}
	for _, w := range workload.All(keys) {
		for _, library := range subject.All() {
			b.Run(fmt.Sprintf("%s/cores=%d/%s", w.Name, w.Cores, library.Name), func(b *testing.B) { take(b, library, w) })
		}
	}
}

func take(b *testing.B, library subject.Library, w workload.Workload) {
	run, err := measure.NewRun(library, w)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := run.Close(); err != nil {
			b.Error(err)
		}
	}()
	b.ResetTimer()
	speed, err := run.Times(max(b.N, leastOps))
	switch {
	case err != nil && library.Rival && speed.FailedShare > 0:
		// throttled's compare-and-swap gives up under contention: no figure, and no defect here.
		b.Skip(err)
	case err != nil:
		b.Fatal(err)
	}
	b.ReportMetric(speed.NsPerOp, "ns/op")
	b.ReportMetric(speed.AllocsPerOp, "allocs/op")
	b.ReportMetric(float64(speed.Distinct), "keys")
	b.ReportMetric(100*speed.AllowedShare, "%allowed")
}
