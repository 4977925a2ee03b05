//go:build !race

// With the race detector, sync.Pool drops objects on purpose.

package engine_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store/memory"
)

// plainAndFull returns decisions about a request that uses no features: under rules
// without any, under rules with all of them, and under these with bans and overrides of
// other keys.
func plainAndFull(t testing.TB) (plain, full, excepted func()) {
	t.Helper()
	file, err := os.ReadFile("testdata/features.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// The requests of these tests join the names of header fields.
	text := strings.ReplaceAll(string(file), `"header:X-Api-Key"`, "user")
	before, _, _ := strings.Cut(text, "  - name: rejected")
	decide := func(rulesText string, exceptions ...engine.Exception) func() {
		e := engine.New(memory.New(), parse(t, rulesText))
		if len(exceptions) > 0 {
			e.SetExceptions(engine.NewExceptions(exceptions, at(0)))
		}
		q := ask(request{"path": "/plain", "user": "k"}, 0)
		return func() {
			v, err := e.Decide(context.Background(), q)
			if err != nil || !v.Allowed || len(v.Results()) != 1 {
				t.Fatalf("Decide: %+v, %v", v, err)
			}
			v.Release()
		}
	}
	return decide(before), decide(text), decide(text, banned(parse(t, text), "plain", "another", 1e9))
}

// TestFeaturesOfOthersAllocateNothing: a rule pays nothing
// for features that only other rules use.
func TestFeaturesOfOthersAllocateNothing(t *testing.T) {
	plain, full, excepted := plainAndFull(t)
	for name, f := range map[string]func(){"without the features": plain, "with them": full, "with bans of others": excepted} {
		if got := testing.AllocsPerRun(1000, f); got != 0 {
			t.Errorf("%s: %v allocations, want none", name, got)
		}
	}
}

// BenchmarkFeaturesOfOthers reports the time of the same request with features as a
// multiple of the time without: the median of rounds in which both take turns.
func BenchmarkFeaturesOfOthers(b *testing.B) {
	plain, full, excepted := plainAndFull(b)
	b.Run("rules", func(b *testing.B) { inTurns(b, plain, full) })
	b.Run("rules and bans", func(b *testing.B) { inTurns(b, plain, excepted) })
}

func inTurns(b *testing.B, plain, full func()) {
	var ratios, took []float64
	for b.Loop() {
		var round [2]time.Duration
		for i, f := range [2]func(){plain, full} {
			begin := time.Now()
			for range 1000 {
				f()
			}
			round[i] = time.Since(begin)
		}
		ratios = append(ratios, float64(round[1])/float64(round[0]))
		took = append(took, float64(round[0])/1000)
	}
	slices.Sort(ratios)
	slices.Sort(took)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(took[len(took)/2], "ns/decision")
}
