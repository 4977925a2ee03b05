//go:build !race

package blocks

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var schedules = flag.Int("blocks.schedules", 4000, "how many random schedules TestNoScheduleAdmitsTooMuch tries")

// TestNoScheduleAdmitsTooMuch: whatever processes, network and clients do, no interval
// has more than the limit and what BlockOver says.
func TestNoScheduleAdmitsTooMuch(t *testing.T) {
	first, n := rand.Uint64(), *schedules
	if *oneSeed != 0 {
		first, n = *oneSeed, 1
	}
	admitted, local := int64(0), int64(0)
	for i := range uint64(n) {
		s := newSimulation(first + i)
		s.run()
		if s.use.wrong != "" || s.under != "" {
			t.Fatalf("seed %d: %s, age %s: %s %s\n%s", first+i, s.limit, s.limit.Rule().BlockAge(), s.use.wrong, s.under, &s.trace)
		}
		admitted += s.use.total
		for _, n := range s.nodes {
			local += n.line.counters.admitted.Load()
		}
	}
	t.Logf("first seed %d: %d schedules admitted %d, at least %d of them in blocks", first, n, admitted, local)
	if n > 100 && local*10 < admitted {
		t.Error("hardly anything was decided in blocks: the test shows nothing")
	}
}
