//go:build !race

// With the race detector sync.Pool drops things on purpose.

package proxy_test

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/store/memory"
)

// plainAndFull returns functions that send a request which uses no features, to rules
// without any features and to rules with all of them.
func plainAndFull(t testing.TB) (plain, full func()) {
	t.Helper()
	text, err := os.ReadFile("../../decide/engine/testdata/features.yaml")
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(text), "  - name: rejected")
	serve := func(rulesText string) func() {
		p := newProxy(t, rulesText, memory.New(), ok)
		r := request(t.Context(), http.MethodGet, "/plain", "X-Api-Key", "key")
		w := &sink{header: http.Header{}}
		return func() {
			clear(w.header)
			p.ServeHTTP(w, r)
			if w.status != http.StatusOK || w.header.Get("X-Ratelimit-Limit") == "" {
				t.Fatalf("%d %v", w.status, w.header)
			}
		}
	}
	return serve(before), serve(string(text))
}

// A request allocates nothing for features that only other rules use.
func TestFeaturesOfOthersAllocateNothing(t *testing.T) {
	plain, full := plainAndFull(t)
	a, b := testing.AllocsPerRun(2000, plain), testing.AllocsPerRun(2000, full)
	if a != b {
		t.Errorf("%v allocations without the features, %v with them", a, b)
	}
}

// BenchmarkFeaturesOfOthers reports the time of a request with features in other rules
// as a multiple of the time without: the median of alternating rounds.
func BenchmarkFeaturesOfOthers(b *testing.B) {
	plain, full := plainAndFull(b)
	var ratios, took []float64
	for b.Loop() {
		var round [2]time.Duration
		for i, f := range [2]func(){plain, full} {
			begin := time.Now()
			for range 100 {
				f()
			}
			round[i] = time.Since(begin)
		}
		ratios = append(ratios, float64(round[1])/float64(round[0]))
		took = append(took, float64(round[0])/100)
	}
	slices.Sort(ratios)
	slices.Sort(took)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(took[len(took)/2], "ns/request")
}
