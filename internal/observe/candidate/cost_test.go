//go:build !race

// With the race detector, sync.Pool drops objects on purpose.

package candidate_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store/memory"
)

// A request that the candidate answers alike allocates no memory.
func TestComparingAllocatesNothing(t *testing.T) {
	f := newFixture(t, limits("a=1000000/minute"), limits("a=2000000/minute", "b=3000000/minute"))
	q := engine.Query{Domain: "api", Part: engine.Part{Request: &request{"/a", "x"}, Cost: 1}, At: f.now.UnixMicro()}
	m := engine.Query{Domain: "api", At: q.At, Parts: []engine.Part{{Request: q.Request, Cost: 1}, {Request: q.Request, Cost: 1}}}
	got := testing.AllocsPerRun(1000, func() {
		v, err := f.live.Decide(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		v.Release()
		all, err := f.live.Decide(context.Background(), m)
		if err != nil {
			t.Fatal(err)
		}
		all.Release()
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// BenchmarkCost compares decisions without a candidate, with one without rules, with
// one that always agrees and with one that never does. They take turns of half a
// millisecond, short enough that a busy machine leaves some of them undisturbed; the
// fastest count.
func BenchmarkCost(b *testing.B) {
	requests := make([]*request, 10_000)
	for i := range requests {
		requests[i] = &request{"/a", fmt.Sprint("user-", i)}
	}
	const batch = 500
	live := limits("a=1000000/minute")
	idle := newFixture(b, live, live)
	idle.SetRules(nil, start)
	engines := []*engine.Engine{
		engine.New(memory.New(), parse(b, live)), idle.live, newFixture(b, live, live).live, newFixture(b, live, limits("a=0/minute")).live,
	}
	least := make([]time.Duration, len(engines))
	began := time.Now()
	for b.Loop() {
		for i, e := range engines {
			from := time.Since(began)
			for j := range batch {
				q := engine.Query{Domain: "api", Part: engine.Part{Request: requests[j%len(requests)], Cost: 1}, At: start.Add(time.Since(began)).UnixMicro()}
				v, err := e.Decide(context.Background(), q)
				if err != nil {
					b.Fatal(err)
				}
				v.Release()
			}
			if took := time.Since(began) - from; least[i] == 0 || took < least[i] {
				least[i] = took
			}
		}
	}
	for i, name := range []string{"ns/without", "ns/idle", "ns/agreeing", "ns/differing"} {
		b.ReportMetric(float64(least[i])/batch, name)
	}
}
