package xds

import (
	"testing"
	"time"
)

func TestBackoffGrowsToItsMaximum(t *testing.T) {
	w := Backoff{Base: time.Second, Max: 3 * time.Second}.waiter()
	for round := range 2 {
		for i, most := range []time.Duration{1000, 1600, 2560, 3000, 3000} {
			most *= time.Millisecond
			if got := w.step(); got < most/2 || got > most {
				t.Errorf("round %d, wait %d: %s, want from %s to %s", round, i, got, most/2, most)
			}
		}
		w.reset()
	}
	if d := (Backoff{}).waiter(); d.Base != time.Second || d.Max != 30*time.Second {
		t.Errorf("defaults %s, %s", d.Base, d.Max)
	}
}
