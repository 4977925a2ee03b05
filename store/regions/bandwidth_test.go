//go:build !race

package regions

import (
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// bytesOf returns how many bytes the messages of a region have.
func (w *world) bytesOf(region string) (sum int) {
	for i := range w.post.streams[region] {
		sum += len(w.post.streams[region][i].Data)
	}
	return sum
}

// TestBandwidth: what docs/many/regions.md says about 1,000 keys that all need more than their
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
				limit := headgate.LimitOf(headgate.PerMinute(600).WithAlgorithm(store.SlidingWindow).Rule().InRegions(store.Regions{}))
				w := newWorld(t, "eu", "us")
				for range c.seconds {
					for range 5 {
						for i := range keys {
							o := op(limit, 1)
							o.Key = "customer-" + strconv.Itoa(100_000+i)
							for range c.each / 5 {
								if _, err := store.Execute(t.Context(), w.stores["eu"], o); err != nil {
									t.Fatal(err)
								}
							}
						}
						w.ticks(1)
					}
					for i := range keys * int(c.each%5) {
						o := op(limit, 1)
						o.Key = "customer-" + strconv.Itoa(100_000+i%keys)
						if _, err := store.Execute(t.Context(), w.stores["eu"], o); err != nil {
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
