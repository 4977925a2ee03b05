package headgate_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// TestHome: every limit can be counted in one region, and says so.
func TestHome(t *testing.T) {
	eu := store.Regions{Home: "eu"}
	blocks := store.Blocks{MaxAge: time.Second, MaxOver: 0.05}
	for limit, want := range map[string]headgate.Limit{
		"5/minute sliding_log counted in eu":                            headgate.LimitOf(headgate.PerMinute(5).WithAlgorithm(headgate.SlidingLog).Rule().InRegions(eu)),
		"5/minute leaky_bucket counted in eu":                           headgate.LimitOf(headgate.PerMinute(5).Rule().InRegions(eu)).WithAlgorithm(headgate.LeakyBucket),
		"5/minute fixed_window from the first request counted in eu":    headgate.LimitOf(headgate.PerMinute(5).WithAlgorithm(headgate.FixedWindow).WithAnchor(headgate.AnchorFirstRequest).Rule().InRegions(eu)),
		"5/minute sliding_window counting refusals counted in eu":       headgate.LimitOf(headgate.PerMinute(5).WithAlgorithm(headgate.SlidingWindow).WithRefusalsCounted().Rule().InRegions(eu)),
		"5/day distinct in UTC, the caller's own zone counted in eu":    headgate.LimitOf(headgate.PerCalendar(5, headgate.Day, nil).WithAlgorithm(headgate.Distinct).WithZone(nil).Rule().InRegions(eu)),
		"5 concurrent, lease 1m counted in eu":                          headgate.LimitOf(headgate.Concurrent(5).Rule().InRegions(eu)),
		"6000/minute token_bucket in blocks up to 1s old counted in eu": headgate.LimitOf(headgate.PerMinute(6000).Rule().InRegions(eu).InBlocks(blocks)),
		"6000/minute token_bucket burst 9 counted in eu":                headgate.LimitOf(headgate.PerMinute(6000).Rule().InRegions(eu)).WithBurst(9).WithName("n"),
		"unlimited":                           headgate.LimitOf(headgate.Unlimited().Rule().InRegions(eu)),
		"6000/minute fixed_window in regions": headgate.LimitOf(headgate.PerMinute(6000).WithAlgorithm(headgate.FixedWindow).Rule().InRegions(eu).InRegions(store.Regions{})),
		"invalid limit: a limit that one region counts has no slack": headgate.LimitOf(headgate.PerMinute(6000).Rule().InRegions(store.Regions{Home: "eu", Slack: 0.1})),
		"invalid limit: the slack of regions must be from 0 to 1":    headgate.LimitOf(headgate.PerMinute(6000).Rule().InRegions(store.Regions{Home: "eu", Slack: 2})),
		"2000/minute token_bucket burst 3000 counted in eu":          headgate.LimitOf(headgate.PerMinute(6000).WithBurst(9000).Rule().InRegions(eu).Share(1. / 3)),
	} {
		if got := want.String(); got != limit {
			t.Errorf("%s, want %s", got, limit)
		}
		if settings, is := want.Rule().Regions(); settings.Home != want.Rule().Home() || !is {
			t.Errorf("%s: home %q and %q", limit, settings.Home, want.Rule().Home())
		}
		if want.Rule().Valid() && want.Rule().RegionOver() != 0 || want.Rule().Valid() && want.Rule().RegionAge() != 0 {
			t.Errorf("%s: a home admits nothing above the limit", limit)
		}
	}
	limit := headgate.PerMinute(5)
	if here, there := headgate.LimitOf(limit.Rule().InRegions(eu)), headgate.LimitOf(limit.Rule().InRegions(store.Regions{Home: "us"})); here.Equal(there) || here.Equal(limit) || !here.Equal(headgate.LimitOf(limit.Rule().InRegions(eu))) {
		t.Error("limits with different homes are not equal")
	}
}

// TestRegionsKnowTheZone: a region describes a limit to the others, which must find the same
// zone by its name. Otherwise they would give nothing, or count in other windows.
func TestRegionsKnowTheZone(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		zone *time.Location
		ok   bool
	}{
		{nil, true},
		{time.UTC, true},
		{berlin, true},
		{time.Local, false},
		{time.FixedZone("", 3600), false},
		{time.FixedZone("Nowhere", 3600), false},
	} {
		day := headgate.PerCalendar(9, headgate.Day, c.zone)
		if got := headgate.LimitOf(day.Rule().InRegions(store.Regions{})); got.Rule().Valid() != c.ok || got.Rule().Part(0, 3).Valid() != c.ok {
			t.Errorf("shared in the zone %q: %s, want valid: %t", c.zone, got, c.ok)
		}
		if got := headgate.LimitOf(day.Rule().InRegions(store.Regions{Home: "eu"})); !got.Rule().Valid() {
			t.Errorf("with a home, in the zone %q: %s", c.zone, got)
		}
	}
}
