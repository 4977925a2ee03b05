package rules_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

func TestLimits(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	set := parse(t, "domain: d\nlimits:\n  - {name: a, rate: 1/day, algorithm: fixed_window, timezone: Europe/Berlin}\n  - {name: b, rate: 1/day, algorithm: fixed_window, timezone: Europe/Berlin, cost: 0}\n")
	if !set.Rules()[0].Limit.Equal(set.Rules()[1].Limit) {
		t.Error("two limits in one time zone are not equal")
	}
	window := func(l headgate.Limit) headgate.Limit { return l.WithAlgorithm(headgate.FixedWindow) }
	for options, want := range map[string]headgate.Limit{
		"rate: 4/minute":                                                 headgate.PerMinute(4),
		"rate: 100/second, burst: 500":                                   headgate.PerSecond(100).WithBurst(500),
		"rate: 100, period: 1m30s":                                       headgate.Per(100, 90*time.Second),
		"rate: 1_000, period: day":                                       headgate.PerDay(1000),
		"rate: 3/s, algorithm: leaky_bucket, burst: 7":                   headgate.PerSecond(3).WithAlgorithm(headgate.LeakyBucket).WithBurst(7),
		"rate: 5/minute, algorithm: fixed_window":                        window(headgate.PerMinute(5)),
		"rate: 5/hour, algorithm: fixed_window, anchor: clock":           window(headgate.PerHour(5)),
		"rate: 5/1d, algorithm: fixed_window":                            window(headgate.PerDay(5)),
		"rate: 5/minute, algorithm: fixed_window, anchor: first_request": window(headgate.PerMinute(5)).WithAnchor(headgate.AnchorFirstRequest),
		"rate: 5/month, algorithm: fixed_window, anchor: first_request":  window(headgate.Per(5, 30*24*time.Hour)).WithAnchor(headgate.AnchorFirstRequest),
		"rate: 5/day, algorithm: fixed_window":                           headgate.PerCalendar(5, headgate.Day, time.UTC),
		"rate: 5/week, algorithm: fixed_window":                          headgate.PerCalendar(5, headgate.Week, time.UTC),
		"rate: 5/month, algorithm: fixed_window, timezone: UTC":          headgate.PerCalendar(5, headgate.Month, time.UTC),
		"rate: 5/year, algorithm: fixed_window, timezone: Europe/Berlin": {},
		"rate: 5/hour, algorithm: fixed_window, timezone: Europe/Berlin": {},
		"rate: 5/month": headgate.Per(5, 30*24*time.Hour),
		"rate: 5/year, algorithm: sliding_window":                            headgate.Per(5, 365*24*time.Hour).WithAlgorithm(headgate.SlidingWindow),
		"rate: 2/minute, algorithm: sliding_log, count_denied: true":         headgate.PerMinute(2).WithAlgorithm(headgate.SlidingLog).WithRefusalsCounted(),
		"rate: 2/minute, algorithm: sliding_log, count_denied: false":        headgate.PerMinute(2).WithAlgorithm(headgate.SlidingLog),
		"rate: 5/hour, algorithm: sliding_buckets":                           headgate.PerHour(5).WithAlgorithm(headgate.SlidingBuckets),
		"rate: 5/hour, algorithm: sliding_buckets, buckets: 6, edge: strict": headgate.PerHour(5).WithAlgorithm(headgate.SlidingBuckets).WithBuckets(6, headgate.EdgeStrict),
		"rate: 5/hour, algorithm: sliding_buckets, edge: lenient":            headgate.PerHour(5).WithAlgorithm(headgate.SlidingBuckets).WithBuckets(60, headgate.EdgeLenient),
		"rate: unlimited": headgate.Unlimited(),
	} {
		got := parse(t, "domain: d\nlimits:\n  - {name: r, "+options+"}\n").Rules()[0].Limit
		if want.Equal(headgate.Limit{}) {
			// Berlin's zone is another pointer for every parse.
			unit := headgate.Year
			if got.Rule().Calendar == headgate.Hour {
				unit = headgate.Hour
			}
			want = headgate.PerCalendar(5, unit, got.Rule().Zone)
			if got.Rule().Zone.String() != berlin.String() {
				t.Errorf("%s: in %s", options, got.Rule().Zone)
			}
		}
		if !got.Equal(want) || got.Validate() != nil {
			t.Errorf("%s: %v (%v), want %v", options, got, got.Validate(), want)
		}
	}
}

func TestRuleOptions(t *testing.T) {
	type options struct {
		OnLimit      rules.OnLimit
		Mode         rules.Mode
		Percent      int
		Cost         int64
		OnStoreError rules.StoreError
		LocalShare   float64
		Position     string
		Description  string
	}
	defaults := options{OnLimit: rules.OnLimit{Status: 429}, Percent: 100, Cost: 1, LocalShare: 1, Position: "test.yaml:3:5"}
	for text, change := range map[string]func(*options){
		"":                       func(*options) {},
		", on_limit: reject":     func(*options) {},
		", cost: 0":              func(o *options) { o.Cost = 0 },
		", mode: shadow":         func(o *options) { o.Mode = rules.Shadow },
		", percent: 0":           func(o *options) { o.Percent = 0 },
		", on_store_error: deny": func(o *options) { o.OnStoreError = rules.StoreErrorDeny },
		", on_store_error: {policy: local, share: 0.25}": func(o *options) {
			o.OnStoreError, o.LocalShare = rules.StoreErrorLocal, 0.25
		},
		", description: \"protects the login\"": func(o *options) { o.Description = "protects the login" },
		", on_limit: {status: 503, body: no, headers: {x-a: 1, X-Empty: \"\"}}": func(o *options) {
			o.OnLimit = rules.OnLimit{Status: 503, Stated: true, Body: "no", ContentType: "text/plain; charset=utf-8", Headers: map[string]string{"X-A": "1", "X-Empty": ""}}
		},
		", on_limit: {body: \"{}\", content_type: application/json}": func(o *options) {
			o.OnLimit = rules.OnLimit{Status: 429, Body: "{}", ContentType: "application/json"}
		},
	} {
		want := defaults
		change(&want)
		r := parse(t, "domain: d\nlimits:\n  - {name: r, rate: 5/s"+text+"}\n").Rules()[0]
		got := options{r.OnLimit, r.Mode, r.Percent, r.Cost, r.OnStoreError, r.LocalShare, r.Position(), r.Description}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", text, diff)
		}
	}
}
