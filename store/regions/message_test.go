package regions

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

func TestSpecsDescribeLimits(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	limits := append(simulatedLimits(),
		headgate.PerMinute(7).WithName("login"), headgate.PerCalendar(3, store.Month, berlin),
		headgate.LimitOf(headgate.PerSecond(100).Rule().InBlocks(store.Blocks{MaxAge: time.Second})),
	)
	for _, l := range limits {
		l = headgate.LimitOf(l.Rule().InRegions(store.Regions{Slack: 0.25}))
		s := specOf(l)
		got, err := s.whole()
		if err != nil {
			t.Errorf("%s: %v", l, err)
			continue
		}
		want := l
		if l.Rule().BlockAge() > 0 { // how a region uses its part is its own business
			want = headgate.LimitOf(headgate.PerSecond(100).Rule().InRegions(store.Regions{Slack: 0.25}))
		}
		if !got.Equal(want) || got.Name() != want.Name() {
			t.Errorf("%s became %s", want, got)
		}
	}
}

// TestParts: the parts of all regions add up to the limit, and a bucket's to its rate.
func TestParts(t *testing.T) {
	for _, l := range simulatedLimits() {
		for n := 1; n <= 7; n++ {
			limit, capacity, rate := int64(0), int64(0), 0.0
			for i := range n {
				part := headgate.LimitOf(l.Rule().Part(i, n))
				if err := part.Validate(); err != nil {
					t.Fatalf("part %d of %d of %s: %v", i, n, l, err)
				}
				limit += part.N()
				capacity += part.Burst()
				rate += float64(part.N()) / part.Period().Seconds()
			}
			if capacity != l.Burst() || l.Algorithm() != store.TokenBucket && limit != l.N() {
				t.Errorf("%d parts of %s: %d, together %d at once", n, l, limit, capacity)
			}
			if want := float64(l.N()) / l.Period().Seconds(); rate > want*1.000001 || rate < want*0.999999 {
				t.Errorf("%d parts of %s: %f per second, want %f", n, l, rate, want)
			}
		}
	}
}

func FuzzMessage(f *testing.F) {
	var w writer
	l := headgate.LimitOf(headgate.PerMinute(100).Rule().InRegions(store.Regions{Slack: 0.1}))
	w.want(&want{entity: entity{"s", "k", 0}, scope: "s", limit: l, tokens: 5})
	w.Gifts = []gift{{To: "eu", Limit: w.place(l), Key: []byte("k"), Tokens: 3, Charged: 5, Until: 6}}
	data, err := w.bytes()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"v":2,"wants":[{"limit":9}]}`))
	f.Add([]byte(`{"v":1,"limits":[{"algorithm":"token_bucket","limit":-1,"period":9223372036854775807}],"wants":[{"limit":0,"n":1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var l limits
		c, limits, err := l.read(data)
		if err != nil || c == nil {
			return
		}
		for _, w := range c.Wants {
			if k := limits[w.Limit]; k.err == nil && k.limit.Validate() != nil {
				t.Errorf("an invalid limit was accepted: %s", k.limit)
			}
		}
		for _, g := range c.Gifts {
			if k := limits[g.Limit]; k.err == nil {
				begins(k.limit.Rule(), g.Until)
			}
		}
	})
}
