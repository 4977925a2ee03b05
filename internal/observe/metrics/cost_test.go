//go:build !race

// With the race detector sync.Pool drops items on purpose.

package metrics_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store/memory"
)

// raceDetector reports whether the race detector is on, which is ten times slower.
const raceDetector = false

// real makes an Observer measure time like the server.
func real(o *metrics.Options) {
	began := time.Now()
	o.Elapsed = func() time.Duration { return time.Since(began) }
	o.Watchers = []metrics.Watcher{metrics.NewStream(&metrics.KeyView{})}
}

const perUser = `
domain: api
limits:
  - {name: per-user, match: {path: /a}, key: [user], rate: 1000000/minute}
`

func TestObservingAllocatesNothing(t *testing.T) {
	f := newFixture(t, perUser, real)
	requests := make([]*request, 1000)
	for i := range requests {
		requests[i] = &request{"/a", fmt.Sprint("user-", i)}
	}
	i := 0
	q := engine.Query{Domain: "api", Part: engine.Part{Cost: 1}, At: f.now.UnixMicro()}
	decide := func() {
		q.Request, q.At = requests[i%len(requests)], q.At+10
		i++
		v, err := f.Decide(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		v.Release()
	}
	for range 10 * len(requests) {
		decide()
	}
	if n := testing.AllocsPerRun(10_000, decide); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Neither a known value nor one beyond the maximum costs an allocation.
func TestCountingByValueAllocatesNothing(t *testing.T) {
	f := newFixture(t, split, real)
	parts := make([][]engine.Part, 200)
	for i := range parts {
		value := fmt.Sprint(strings.Repeat("\xffé", i), i)
		parts[i] = []engine.Part{{Request: &rules.Descriptor{Entries: []rules.Entry{{Key: "user", Value: value}}}, Cost: 1}}
	}
	i := 0
	q := engine.Query{Domain: "api", At: f.now.UnixMicro(), Door: engine.DoorGRPC}
	decide := func() {
		q.Parts, q.At = parts[i%len(parts)], q.At+10
		i++
		v, err := f.Decide(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		v.Release()
	}
	for range 10 * len(parts) {
		decide()
	}
	if n := testing.AllocsPerRun(10_000, decide); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkCost compares decisions with and without metrics. It alternates every few
// milliseconds and uses the fastest, so other load on the machine affects both alike.
// Requests have the real time, as at a door.
func BenchmarkCost(b *testing.B) {
	requests := make([]*request, 10_000)
	for i := range requests {
		requests[i] = &request{"/a", fmt.Sprint("user-", i)}
	}
	const batch = 5000
	began := time.Now()
	turn := func(e *engine.Engine) time.Duration {
		from := time.Since(began)
		for i := range batch {
			q := engine.Query{Domain: "api", Part: engine.Part{Request: requests[i%len(requests)], Cost: 1}, At: start.Add(time.Since(began)).UnixMicro()}
			v, err := e.Decide(context.Background(), q)
			if err != nil {
				b.Fatal(err)
			}
			v.Release()
		}
		return time.Since(began) - from
	}
	engines := [2]*engine.Engine{engine.New(memory.New(), parse(b, perUser)), newFixture(b, perUser, real).Engine}
	least := [2]time.Duration{time.Hour, time.Hour}
	for b.Loop() {
		for i, e := range engines {
			least[i] = min(least[i], turn(e))
		}
	}
	without, with := float64(least[0])/batch, float64(least[1])/batch
	b.ReportMetric(without, "ns/without")
	b.ReportMetric(with, "ns/with")
	b.ReportMetric(100*(with/without-1), "%more")
}
