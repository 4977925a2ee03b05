package regions

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// reading is the Exchange of a store that publishes in one place, where nobody reads, and
// reads in another.
type reading struct {
	postOf
	from postOf
}

func (r reading) Read(ctx context.Context, region, after string) (store.Messages, error) {
	return r.from.Read(ctx, region, after)
}

// Two stores call themselves eu, and us reads one of them: only that one gets what us gives,
// and the other one says so until it is gone.
func TestTwoStoresOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "eu", "us")
		var told error
		apart := &post{streams: map[string][]store.Message{}, down: map[string]error{}, seen: map[string]map[string]time.Time{}}
		twin, err := newStore(memory.New(memory.WithClock(time.Now)), Options{
			Name: "eu", Others: []string{"us"}, Exchange: reading{postOf{apart, "eu", "of-twin"}, postOf{w.post, "eu", ""}},
			OnError: func(region string, err error) {
				if region == "us" {
					told = err
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		used := 0
		for range 20 {
			used += w.takeAll("eu", perMinute)
			for {
				d, err := store.Execute(t.Context(), twin, op(perMinute, 1))
				if err != nil {
					t.Fatal(err)
				}
				if !d.Allowed {
					break
				}
				used++
			}
			w.ticks(1)
			twin.tick(t.Context())
		}
		if whole := int(perMinute.N()); used != whole+whole/2 {
			t.Errorf("%d were admitted, want the limit and the part of the twin, %d", used, whole+whole/2)
		}
		if !errors.Is(told, ErrTwin) {
			t.Errorf("the twin was told %v", told)
		}
		if err := w.stores["eu"].Stats()[0].Err; err != nil {
			t.Errorf("eu has the error %v", err)
		}
		time.Sleep(2 * store.Recent)
		twin.tick(t.Context())
		if told != nil {
			t.Errorf("when nothing is given any more, the twin is told %v", told)
		}
	})
}

// While regions have different limits of one rule, which one region has changed and another
// not yet, all together admit at most the larger one.
func TestTwoLimitsOfOneRule(t *testing.T) {
	for _, algorithm := range []store.Algorithm{store.FixedWindow, store.SlidingWindow} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "ap", "eu", "us")
			limit := func(n int64) headgate.Limit {
				return headgate.LimitOf(headgate.Per(n, time.Hour).WithAlgorithm(algorithm).Rule().InRegions(store.Regions{})).WithName("search")
			}
			small, large, used := limit(60), limit(600), 0
			for i := range 40 {
				used += w.takeAll("eu", []headgate.Limit{small, large}[i/10%2])
				used += w.takeAll("us", []headgate.Limit{small, large}[i/5%2])
				w.ticks(1)
			}
			if most := 600 + 2; used > most || used < 300 {
				t.Errorf("%s: %d were admitted, want at most %d", algorithm, used, most)
			}
		})
	}
}
