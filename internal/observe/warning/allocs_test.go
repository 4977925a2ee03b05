//go:build !race

// Under the race detector, sync.Pool drops items on purpose.

package warning_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store/memory"
)

func TestWatchingAllocatesNothing(t *testing.T) {
	with, without := newTraffic(t, perUser, nil), newTraffic(t, perUser, nil)
	without.e = engine.New(memory.New(), without.e.Rules())
	r := &request{"ann"}
	allocs := func(tr *traffic) float64 {
		q := engine.Query{Domain: "api", Part: engine.Part{Request: r, Cost: 1}, At: tr.now.UnixMicro()}
		return testing.AllocsPerRun(2000, func() {
			v, _ := tr.e.Decide(context.Background(), q)
			v.Release()
		})
	}
	for range 100 { // ann is refused from now on
		with.ask("ann", 0)
		without.ask("ann", 0)
	}
	if a, b := allocs(with), allocs(without); a > b {
		t.Errorf("%v allocations, %v without", a, b)
	}
}
