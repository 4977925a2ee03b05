package regions

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// FuzzPeer: whatever another region publishes, this one goes on, and decides by its part.
func FuzzPeer(f *testing.F) {
	now := time.Now().UnixMicro()
	for _, l := range simulatedLimits() {
		var w writer
		l = headgate.LimitOf(l.Rule().InRegions(store.Regions{Slack: 0.1}))
		w.want(&want{entity: entity{"api/rule", "k", 0}, scope: "api/rule", limit: l, tokens: 5})
		w.Gifts = []gift{{To: "eu", Scope: "api/rule", Limit: w.place(l), Key: []byte("k"), Tokens: 3, Charged: now, Until: now + 20_000_000}}
		w.Seen = map[string]int64{"eu": now}
		data, err := w.bytes()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, text := range []string{
		`{"v":1,"limits":[{"algorithm":"token_bucket","limit":9007199254740991,"period":9223372036854775807,"burst":9223372036854775807}],"wants":[{"limit":0,"n":9223372036854775807,"key":"aw=="}]}`,
		`{"v":1,"limits":[{"algorithm":"fixed_window","limit":5,"calendar":6,"zone":"Europe/Berlin"}],"gifts":[{"to":"eu","limit":0,"n":9223372036854775807,"key":"aw==","charged":9223372036854775807,"until":9223372036854775807}]}`,
		`{"v":1,"limits":[{"algorithm":"token_bucket","limit":5,"period":1000000,"burst":9}],"gifts":[{"to":"eu","limit":0,"n":1,"key":"","charged":9223372036854775807,"until":1}]}`,
		`{"v":1,"from":"eu"}`, `{"v":1,"seen":{"eu":9223372036854775807,"us":-9223372036854775808}}`, `null`, `[]`, `{"v":1,"wants":null}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w := newWorld(t, "eu", "us")
		w.takeAll("eu", perMinute)
		w.post.streams["us"] = []store.Message{{ID: "1", At: time.Now(), Data: data}}
		for range 2 {
			w.stores["eu"].tick(t.Context())
		}
		used := w.takeAll("eu", headgate.LimitOf(headgate.PerHour(10).WithAlgorithm(store.FixedWindow).Rule().InRegions(store.Regions{})).WithName("other"))
		if used > 5 {
			t.Errorf("a region with a part of 5 admits %d", used)
		}
		if n := len(w.stores["eu"].couriers[0].arriving); n > mostArriving {
			t.Errorf("%d gifts wait", n)
		}
	})
}

// A gift of more than the limit is none, and one that was charged later than it was
// published, as when the clock of the messages was set back in between, drains from then on.
func TestImpossibleGifts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "eu", "us")
		limit := headgate.LimitOf(headgate.PerMinute(60).WithBurst(60).Rule().InRegions(store.Regions{}))
		if got := w.takeAll("eu", limit); got != 30 {
			t.Fatalf("%d were admitted, want the part of 30", got)
		}
		gives := func(tokens int64, charged time.Time) {
			t.Helper()
			var out writer
			out.Gifts = []gift{{To: "eu", Scope: "api/rule", Limit: out.place(limit), Key: []byte("k"), Tokens: tokens, Charged: charged.UnixMicro(), Until: charged.Add(time.Minute).UnixMicro()}}
			data, err := out.bytes()
			if err != nil {
				t.Fatal(err)
			}
			if err := (postOf{w.post, "us", ""}).Publish(t.Context(), data); err != nil {
				t.Fatal(err)
			}
		}
		gives(61, time.Now())
		gives(math.MaxInt64, time.Now())
		w.stores["eu"].tick(t.Context())
		if is := w.stores["eu"].Stats()[0]; is.Received != 0 || is.Skipped != 2 {
			t.Errorf("%+v: want two gifts skipped", is)
		}
		if got := w.takeAll("eu", limit); got != 0 {
			t.Errorf("%d were admitted", got)
		}
		gives(10, time.Now().Add(time.Hour))
		time.Sleep(15 * time.Second) // half a token a second: 7 of them
		w.stores["eu"].tick(t.Context())
		if got := w.takeAll("eu", limit); got > 7+3 {
			t.Errorf("%d were admitted, want 7 that were refilled and 3 of the gift", got)
		}
	})
}
