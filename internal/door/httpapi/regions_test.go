package httpapi_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// TestBoundOfRegionsInWords: what all regions together admit, for each kind of limit.
func TestBoundOfRegionsInWords(t *testing.T) {
	t.Parallel()
	three := &rules.Regions{Own: "eu", Others: []string{"us", "ap"}}
	day := headgate.PerDay(100).WithAlgorithm(headgate.FixedWindow)
	for _, c := range []struct {
		limit headgate.Limit
		among *rules.Regions
		own   int64
		over  int64
		bound string
	}{
		{headgate.LimitOf(day.Rule().InRegions(store.Regions{})), three, 33, 0, "all regions together admit at most 100 in a window"},
		{headgate.LimitOf(day.WithAlgorithm(headgate.SlidingWindow).Rule().InRegions(store.Regions{})), three, 33, 2, "all regions together admit at most 102 in a window: the limit of 100, and 2 by rounding"},
		{headgate.LimitOf(day.WithAlgorithm(headgate.SlidingWindow).Rule().InRegions(store.Regions{})), nil, 0, 0, "all regions together admit at most 100 in a window, and by rounding one more for each region after the first"},
		{headgate.LimitOf(headgate.PerSecond(100).Rule().InRegions(store.Regions{Slack: 0.1})), three, 33, 10, "all regions together admit at most 110 at once: the burst of 100, and 10 on the way between regions"},
		{
			headgate.LimitOf(headgate.PerSecond(1000).Rule().InRegions(store.Regions{}).InBlocks(store.Blocks{MaxAge: time.Second, MaxOver: 0.06})), three, 333, 61,
			"all regions together admit at most 1061 at once: the burst of 1000, and 61 of blocks",
		},
		{headgate.LimitOf(day.Rule().InRegions(store.Regions{Home: "us"})), three, 0, 0, "all regions together admit at most 100 in a window"},
		{headgate.LimitOf(headgate.PerSecond(100).WithAlgorithm(headgate.LeakyBucket).Rule().InRegions(store.Regions{Home: "us"})), three, 0, 0, "all regions together admit at most 100 at once"},
		{headgate.LimitOf(headgate.Concurrent(3).Rule().InRegions(store.Regions{Home: "us"})), three, 0, 0, "all regions together admit at most 3 at once"},
		{headgate.LimitOf(day.WithAlgorithm(headgate.Distinct).Rule().InRegions(store.Regions{Home: "us"})), three, 0, 0, "all regions together admit at most 100 different values in a window"},
	} {
		r := httpapi.RegionsOf(c.limit, c.among)
		if r == nil {
			t.Fatalf("%s is not shared", c.limit)
		}
		if own, _ := r.Own(); own != c.own || r.Over != c.over || r.Bound != c.bound || r.Alone == "" || r.Home != c.limit.Rule().Home() {
			t.Errorf("%s: %+v, want %d of its own, %d more, %s", c.limit, r, c.own, c.over, c.bound)
		}
	}
	if r := httpapi.RegionsOf(day, three); r != nil {
		t.Errorf("a limit of each region is shared: %+v", r)
	}
}
