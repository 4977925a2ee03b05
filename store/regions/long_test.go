package regions

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestARegionIsGoneForAnHour: the others keep what they have in every window, nothing
// grows, and it shares again when it is back.
func TestARegionIsGoneForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "ap", "eu", "us")
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		minute := func() (used int) {
			for end := time.Now().Add(time.Minute); time.Now().Before(end); w.ticks(1) {
				used += w.takeAll("eu", perMinute)
				if w.take("ap", perMinute, 1).Allowed {
					used++
				}
				for name := range w.post.streams { // as a server trims them
					if all := w.post.streams[name]; len(all) > 1000 {
						for i := range len(all) - 1000 {
							all[i].Data = nil
						}
					}
				}
			}
			return used
		}
		if got := minute(); got != 100 {
			t.Fatalf("%d were admitted before, want 100", got)
		}
		gone := errors.New("gone")
		w.post.down["us"] = gone
		w.names = []string{"ap", "eu"} // us does not act
		minute()                       // what us had given before is in this window
		sizes := func() (n int) {
			for _, name := range w.names {
				for _, c := range w.stores[name].couriers {
					n += len(c.given) + len(c.arriving) + len(c.ledger.open) + len(c.limits.made)
				}
				for i := range w.stores[name].demand.shards {
					n += len(w.stores[name].demand.shards[i].needs)
				}
			}
			return n
		}
		for m := range 60 {
			if got := minute(); got != 66 {
				t.Fatalf("%d were admitted in minute %d without us, want the parts of ap and eu", got, m)
			}
			if n := sizes(); n > 200 {
				t.Fatalf("%d things are remembered after %d minutes", n, m)
			}
		}
		if is := w.stores["eu"].Stats()[1]; is.Region != "us" || is.Cut < time.Hour {
			t.Errorf("%+v: want a cut of an hour", is)
		}
		clear(w.post.down)
		w.names = []string{"ap", "eu", "us"}
		if got := minute(); got != 100 {
			t.Errorf("%d were admitted after an hour, want 100", got)
		}
	})
}
