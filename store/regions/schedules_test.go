//go:build !race

package regions

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var (
	schedules = flag.Int("regions.schedules", 500, "how many random schedules TestNoScheduleAdmitsTooMuch tries")
	firstSeed = flag.Uint64("regions.from", 1, "the first of them")
)

// outcome is what one schedule or more came to.
type outcome struct {
	messages, full int
	wrong          string
}

// try runs the schedule of a seed.
func try(seed uint64) (o outcome) {
	choose := rand.New(rand.NewPCG(seed, 7))
	all := simulatedLimits()
	limit := headgate.LimitOf(all[choose.IntN(len(all))].Rule().InRegions(store.Regions{Slack: []float64{0, 0.05, 0.5}[choose.IntN(3)]}))
	s := newSimulation(seed, limit, []int{0, 0, 30, 6}[choose.IntN(4)])
	for range 300 {
		s.event()
		s.now += s.rng.Int64N(100_000)
	}
	for _, r := range s.regions {
		o.messages += len(r.stream)
	}
	if s.use.fullest >= s.limit.Burst() {
		o.full++
	}
	if s.use.wrong != "" {
		o.wrong = fmt.Sprintf("schedule %d, %s, %d regions: %s\n%s", seed, limit, len(s.regions), s.use.wrong, s.trace.String())
	}
	return o
}

// tryAll runs n schedules from a seed on, on all processors, and tells now and then how many
// it has run.
func tryAll(t *testing.T, from, n uint64) (sum outcome) {
	const step = 100_000 // of progress
	var (
		mu   sync.Mutex
		done uint64
		next atomic.Uint64
		all  sync.WaitGroup
	)
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := next.Add(1); i <= n; i = next.Add(1) {
				o := try(from + i - 1)
				mu.Lock()
				sum.messages += o.messages
				sum.full += o.full
				if sum.wrong == "" && o.wrong != "" {
					sum.wrong = o.wrong
					next.Store(n)
				}
				if done++; done%step == 0 {
					t.Logf("%d of %d schedules", done, n)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return sum
}

// TestNoScheduleAdmitsTooMuch: whatever the network, clocks and processes do, all
// regions together admit no more than the limit, and a bucket its slack above.
func TestNoScheduleAdmitsTooMuch(t *testing.T) {
	from, n := *firstSeed, *schedules
	if *oneSeed != 0 {
		from, n = *oneSeed, 1
	}
	sum := tryAll(t, from, uint64(max(n, 0)))
	if sum.wrong != "" {
		t.Fatal(sum.wrong)
	}
	t.Logf("%d messages; %d of %d schedules reached the limit", sum.messages, sum.full, n)
	if n > 1 && sum.full < n/20 {
		t.Errorf("only %d of %d schedules reached the limit: nothing was tested", sum.full, n)
	}
}
