package checks_test

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/checks"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// TestPlacesAreTakenInTurn: any number of requests may wait for their turn, whatever
// the number of slots. Each takes a slot when its turn has come.
func TestPlacesAreTakenInTurn(t *testing.T) {
	t.Parallel()
	limits := checks.Limits[string]{Limiter: headgate.New(memory.New(), headgate.WithClock(func() time.Time { return time.Unix(1_700_000_000, 0) }))}
	for _, limit := range []headgate.Limit{headgate.Concurrent(3), headgate.PerSecond(1).WithAlgorithm(headgate.LeakyBucket).WithBurst(20)} {
		all := checks.Options[string]{Key: func(r string) (string, bool) { return r, true }, Cost: func(string) int64 { return 1 }}
		if err := limits.Add(all, limit); err != nil {
			t.Fatal(err)
		}
	}
	var ops [12][]store.Op
	var decisions [12][2]store.Decision
	for i := range ops {
		ops[i] = slices.Clone(limits.Ops)
		limits.About("ann", ops[i])
		if d, err := limits.AllowAll(t.Context(), ops[i], decisions[i][:]); err != nil || !d.Allowed || decisions[i][0].Lease != 0 {
			t.Fatalf("request %d: %+v, %v", i, d, err)
		}
	}
	for i := range 4 {
		undone, place := false, &decisions[i][0]
		d, err := limits.Enter(t.Context(), ops[i], func(n int) *store.Decision { return &decisions[i][n] }, func() { undone = true })
		if want := i < 3; err != nil || d.Allowed != want || (place.Lease != 0) != want || undone == want || place.Allowed != want {
			t.Errorf("request %d: %+v, undone %t, %v", i, d, undone, err)
		}
	}
}
