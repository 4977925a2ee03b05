package regions

import (
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
)

// bytesOf returns how many bytes the messages of a region have.
func (w *world) bytesOf(region string) (sum int) {
	for i := range w.post.streams[region] {
		sum += len(w.post.streams[region][i].Data)
	}
	return sum
}

// TestBandwidth: what docs/regions.md says about 1,000 keys that all need more than their
// part all the time. Keys with requests for less than half of it send nothing.
func TestBandwidth(t *testing.T) {
	const (
		keys = 1000
		most = 100_000 // bytes per second
	)
	for _, c := range []struct {
		name    string
		each    int64 // tokens of each key per second
		seconds int
		nothing bool
	}{{"hot", 12, 60, false}, {"used up", 100, 30, false}, {"quiet", 2, 60, true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit := headgate.PerMinute(600).Using(headgate.SlidingWindow).InRegions(headgate.Regions{})
				w := newWorld(t, "eu", "us")
				for range c.seconds {
					for range 5 {
						for i := range keys {
							o := op(limit, 1)
							o.Key = "customer-" + strconv.Itoa(100_000+i)
							for range c.each / 5 {
								if _, err := w.stores["eu"].Take(t.Context(), o); err != nil {
									t.Fatal(err)
								}
							}
						}
						w.ticks(1)
					}
					for i := range keys * int(c.each%5) {
						o := op(limit, 1)
						o.Key = "customer-" + strconv.Itoa(100_000+i%keys)
						if _, err := w.stores["eu"].Take(t.Context(), o); err != nil {
							t.Fatal(err)
						}
					}
				}
				asked, gave := w.bytesOf("eu")/c.seconds, w.bytesOf("us")/c.seconds
				t.Logf("%d bytes/s ask, %d bytes/s give, for %d keys", asked, gave, keys)
				switch sent := asked + gave; {
				case c.nothing && sent != 0:
					t.Error("quiet keys send something")
				case !c.nothing && (sent == 0 || sent > most):
					t.Errorf("%d bytes per second, want at most %d", sent, most)
				}
			})
		})
	}
}

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
