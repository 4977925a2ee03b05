package advice_test

import (
	"math"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/replay/advice"
)

// Only ratios count: a limit treats its clients in the same way by the hour and by the year,
// although years of simulated requests do not fit in the time that the steps know.
func TestSlowLimitsAreTreatedAlike(t *testing.T) {
	t.Parallel()
	hour := func(n int64) headgate.Limit { return headgate.Per(n, time.Hour) }
	for _, row := range []struct {
		limit headgate.Limit
		slow  func(period time.Duration) headgate.Limit
	}{
		{hour(5), func(p time.Duration) headgate.Limit { return headgate.Per(5, p) }},
		{hour(1).Burst(3), func(p time.Duration) headgate.Limit { return headgate.Per(1, p).Burst(3) }},
		{
			hour(6).RefillEvery(20 * time.Minute),
			func(p time.Duration) headgate.Limit {
				return headgate.Per(6, p).RefillEvery((p / 3).Truncate(time.Microsecond))
			},
		},
		{
			hour(5).Using(headgate.LeakyBucket).Burst(20).MaxWait(30 * time.Minute),
			func(p time.Duration) headgate.Limit {
				return headgate.Per(5, p).Using(headgate.LeakyBucket).Burst(20).MaxWait((p / 2).Truncate(time.Microsecond))
			},
		},
		{
			hour(5).Using(headgate.FixedWindow).CountingDenied(),
			func(p time.Duration) headgate.Limit {
				return headgate.Per(5, p).Using(headgate.FixedWindow).CountingDenied()
			},
		},
		{
			hour(5).Using(headgate.FixedWindow).Anchored(headgate.AnchorFirstRequest),
			func(p time.Duration) headgate.Limit {
				return headgate.Per(5, p).Using(headgate.FixedWindow).Anchored(headgate.AnchorFirstRequest)
			},
		},
		{hour(5).Using(headgate.SlidingLog), func(p time.Duration) headgate.Limit { return headgate.Per(5, p).Using(headgate.SlidingLog) }},
		{hour(5).Using(headgate.SlidingWindow), func(p time.Duration) headgate.Limit { return headgate.Per(5, p).Using(headgate.SlidingWindow) }},
		{
			hour(5).Using(headgate.SlidingBuckets).Buckets(6, headgate.EdgeStrict),
			func(p time.Duration) headgate.Limit {
				return headgate.Per(5, p).Using(headgate.SlidingBuckets).Buckets(6, headgate.EdgeStrict)
			},
		},
	} {
		want, ok := advice.Of(row.limit)
		if !ok {
			t.Fatal(row.limit)
		}
		for _, period := range []time.Duration{24 * time.Hour, 365 * 24 * time.Hour, headgate.MaxPeriod} {
			limit := row.slow(period.Truncate(3 * time.Millisecond))
			got, ok := advice.Of(limit)
			if !ok || math.Abs(got.Steady.Refused-want.Steady.Refused) > 0.01 || math.Abs(got.Bursty.Refused-want.Bursty.Refused) > 0.01 {
				t.Errorf("%s: %+v, by the hour %+v", limit, got, want)
				continue
			}
			if (got.Better == nil) != (want.Better == nil) || got.Better != nil && got.Better.Burst != want.Better.Burst {
				t.Errorf("%s: %+v, by the hour %+v", limit, got.Better, want.Better)
			}
		}
	}
	year := headgate.PerHour(5).Using(headgate.FixedWindow)
	calendar, _ := advice.Of(headgate.PerCalendar(5, headgate.Year, nil))
	want, _ := advice.Of(year)
	if math.Abs(calendar.Steady.Refused-want.Steady.Refused) > 0.01 {
		t.Errorf("calendar years: %+v, by the hour %+v", calendar, want)
	}
}
