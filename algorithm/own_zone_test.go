package algorithm

import (
	"archive/zip"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var travelFlag = flag.Int("travel.ops", 60_000, "operations of the tests of callers who travel")

const day = 24 * hour

// everyZone returns all zones of the IANA database, as Go has it.
var everyZone = sync.OnceValue(func() (zones []*time.Location) {
	r, err := zip.OpenReader(filepath.Join(runtime.GOROOT(), "lib", "time", "zoneinfo.zip")) //nolint:staticcheck // the tests run where they are built
	if err != nil {
		panic(err)
	}
	defer r.Close() //nolint:errcheck // it was only read
	for _, f := range r.File {
		if !strings.HasSuffix(f.Name, "/") {
			zones = append(zones, zone(f.Name))
		}
	}
	return zones
})

// traveller is a caller of a limit of 1 in the caller's own zone. At each time it takes
// whatever it can get.
type traveller struct {
	*testing.T
	rng   *rand.Rand
	unit  store.CalendarUnit
	rules []*store.Rule // by zone
	state State
	fresh int64
	// passed has the times of what was allowed, ends the ends of their windows.
	passed, ends []int64
	total        int
}

func newTraveller(t *testing.T, rng *rand.Rand, unit store.CalendarUnit, zones []*time.Location) *traveller {
	t.Helper()
	c := &traveller{T: t, rng: rng, unit: unit}
	for _, z := range zones {
		limit := headgate.PerCalendar(1, unit, nil).WithZone(z)
		c.rules = append(c.rules, limit.Rule())
	}
	return c
}

// take tries in one zone. A store forgets what is fresh, at random.
func (c *traveller) take(r *store.Rule, now int64) Result {
	if now >= c.fresh && c.rng.IntN(2) == 0 {
		c.state = State{}
	}
	res := Step(r, &c.state, now, Request{Cost: 1})
	if res.Wrote {
		c.fresh = res.FreshAt
		c.total++
		c.passed, c.ends = append(c.passed, now), append(c.ends, c.state.V[1])
	}
	if wait := int64(res.RetryAfter / time.Microsecond); !res.Allowed && wait > 2*r.Period+3*hour {
		c.Fatalf("%s: must wait for %s", r.Zone, res.RetryAfter)
	}
	return res
}

// greedy returns the rule of the zone in which the window of now ends first.
func (c *traveller) greedy(now int64) *store.Rule {
	best, soonest := c.rules[0], int64(never)
	for _, r := range c.rules {
		if _, end := fixedWindow(r, &c.state, now); end < soonest {
			best, soonest = r, end
		}
	}
	return best
}

// check holds every window against the bound: it ends a whole unit (two days less than
// that for a week or more) after the last one, or it is a whole calendar window.
func (c *traveller) check() {
	for i := 1; i < len(c.ends); i++ {
		before, end := c.ends[i-1], c.ends[i]
		least := nominalOf(c.unit)
		if c.unit >= store.Week {
			least -= 2 * day
			if c.unit > store.Week {
				least -= 5 * day // February, a leap year
			}
		}
		if end-before >= least {
			continue
		}
		whole := false
		for _, r := range c.rules {
			s, e := CalendarWindow(r.Calendar, r.Zone, end-1)
			whole = whole || s == before && e == end
		}
		if !whole {
			c.Fatalf("%s: a window of %s after that until %s", c.unit, micros(end-before), time.UnixMicro(before).UTC())
		}
	}
}

// most returns the most that passed within any span of time.
func (c *traveller) most(span int64) (most int) {
	first := 0
	for i, at := range c.passed {
		for at-c.passed[first] >= span {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

func nominalOf(unit store.CalendarUnit) int64 {
	limit := headgate.PerCalendar(1, unit, nil)
	return limit.Rule().Period
}

// withoutChanges returns the zones whose clocks did not change in these years.
func withoutChanges(from, to int) (zones []*time.Location) {
	for _, z := range everyZone() {
		start, end := time.Date(from, 1, 1, 0, 0, 0, 0, z), time.Date(to, 1, 1, 0, 0, 0, 0, z)
		if _, change := start.ZoneBounds(); change.IsZero() || change.After(end) {
			zones = append(zones, z)
		}
	}
	return zones
}

// TestTravellerGainsNothing has callers claim zones at random, and zones chosen so that
// each window is as short as it can be: never do they get more than two budgets in a
// day, an hour or a minute, as a caller who never moves gets across an edge.
func TestTravellerGainsNothing(t *testing.T) {
	rng := newRand(t)
	still := withoutChanges(2025, 2040)
	if len(everyZone()) < 590 || len(still) < 200 {
		t.Fatalf("%d zones, %d without clock changes", len(everyZone()), len(still))
	}
	for unit := store.Minute; unit <= store.Year; unit++ {
		for name, zones := range map[string][]*time.Location{"all zones": everyZone(), "no clock changes": still} {
			for _, how := range []string{"at random", "greedily"} {
				t.Run(fmt.Sprint(unit, "/", name, "/", how), func(t *testing.T) {
					c := newTraveller(t, rng, unit, zones)
					c.travel(how == "greedily")
					c.check()
					if name == "no clock changes" && unit <= store.Day && c.most(nominalOf(unit)) > 2 {
						t.Errorf("%d budgets within one %s", c.most(nominalOf(unit)), unit)
					}
					if c.total < 10 {
						t.Errorf("only %d passed", c.total)
					}
				})
			}
		}
	}
}

// travel takes in the last moment of each window and in the first of the next, and now
// and then idles for a while.
func (c *traveller) travel(greedily bool) {
	ops := *travelFlag / 24
	if greedily {
		ops /= 40 // each looks at all zones
	}
	now, period := int64(t0), nominalOf(c.unit)
	last := time.Date(2039, 12, 31, 0, 0, 0, 0, time.UTC).UnixMicro()
	for range max(ops, 100) {
		if now > last {
			now, c.state, c.fresh = t0, State{}, 0
			c.check()
			c.passed, c.ends = nil, nil
		}
		r := pick(c.rng, c.rules...)
		if greedily {
			r = c.greedy(now)
		}
		c.take(r, now)
		switch end := c.state.V[1]; {
		case c.rng.IntN(8) == 0:
			now += c.rng.Int64N(3 * period)
		case now < end-1 && c.rng.IntN(4) == 0:
			now = end - 1
		default:
			now = max(end, now+1)
		}
	}
}

// TestStayingIsAsBefore: in every zone, who stays is answered as under a limit of that
// zone, in each field and at each time.
func TestStayingIsAsBefore(t *testing.T) {
	rng := newRand(t)
	for _, z := range everyZone() {
		for unit := store.Minute; unit <= store.Year; unit++ {
			fixed := headgate.PerCalendar(3, unit, z)
			own := fixed.WithZone(z)
			period, now := nominalOf(unit), int64(0)
			// The years in which the zone's clocks changed most, and the present.
			now = pick(rng, int64(0), 30*year, 50*year) + rng.Int64N(20*year)
			var a, b State
			for range max(*travelFlag/2000, 20) {
				now += pick(rng, period/3, period, rng.Int64N(3*period))
				req := Request{Kind: pick(rng, store.KindTake, store.KindTake, store.KindTake, store.KindCharge, store.KindRefund), Cost: 1 + rng.Int64N(2)}
				want, got := Step(fixed.Rule(), &a, now, req), Step(own.Rule(), &b, now, req)
				if got.Decision != want.Decision {
					t.Fatalf("%s in %s at %d, %s: %s, want %s", unit, z, now, req.Kind, show(got), show(want))
				}
			}
		}
	}
}

// TestZoneChange goes from Berlin to New York and on to Tokyo, by day.
func TestZoneChange(t *testing.T) {
	in := func(name string) *store.Rule {
		limit := headgate.PerCalendar(100, store.Day, nil).WithZone(zone(name))
		return limit.Rule()
	}
	at := func(text string) int64 {
		at, err := time.Parse("2006-01-02 15:04 -0700", text)
		if err != nil {
			t.Fatal(err)
		}
		return at.UnixMicro()
	}
	var s State
	for _, row := range []struct {
		zone, at    string
		cost        int64
		left        int64
		retry, full time.Duration
	}{
		{"Europe/Berlin", "2026-06-01 10:00 +0200", 100, 0, 0, 14 * time.Hour},
		// The window of the first zone goes on.
		{"America/New_York", "2026-06-01 17:00 -0400", 1, 0, time.Hour, time.Hour},
		// Midnight in Berlin has passed. Midnight in New York is 6 hours away, the next 30.
		{"America/New_York", "2026-06-01 18:00 -0400", 100, 0, 0, 30 * time.Hour},
		{"Asia/Tokyo", "2026-06-03 12:00 +0900", 1, 0, time.Hour, time.Hour},
		// 13:00 in Tokyo: the next midnight is too early, the one after is 35 hours away.
		{"Asia/Tokyo", "2026-06-03 13:00 +0900", 60, 40, 0, 35 * time.Hour},
		{"Asia/Tokyo", "2026-06-05 00:00 +0900", 1, 99, 0, 24 * time.Hour},
	} {
		got := Step(in(row.zone), &s, at(row.at), Request{Cost: row.cost})
		if got.Remaining != row.left || got.RetryAfter != row.retry || got.ResetAfter != row.full {
			t.Errorf("%s at %s: %s", row.zone, row.at, show(got))
		}
	}
}

// TestRefundedWindowStays: a window of which all is given back does not end earlier in
// another zone, and loses no budget either.
func TestRefundedWindowStays(t *testing.T) {
	limit := headgate.PerCalendar(5, store.Day, nil)
	west, east := limit.WithZone(zone("Etc/GMT+12")), limit.WithZone(zone("Pacific/Kiritimati"))
	var s State
	Step(west.Rule(), &s, t0, Request{Cost: 5})
	end := s.V[1]
	Step(east.Rule(), &s, t0+1, Request{Kind: store.KindRefund, Cost: 5})
	got := Step(east.Rule(), &s, t0+2, Request{Cost: 5})
	if !got.Allowed || s.V[1] != end || got.FreshAt != end+day {
		t.Errorf("%s, ends at %d, want %d", show(got), s.V[1], end)
	}
	if got := Step(east.Rule(), &s, end, Request{Kind: store.KindPeek, Cost: 5}); !got.Allowed || got.ResetAfter != 0 || got.FreshAt != end+day {
		t.Errorf("after the window: %s", show(got))
	}
}
