package admin

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// Rates are written as in rules.
func TestRateText(t *testing.T) {
	const hour = time.Hour
	for want, limit := range map[string]headgate.Limit{
		"5/second":         headgate.PerSecond(5),
		"5/minute":         headgate.Per(5, time.Minute).WithAlgorithm(headgate.SlidingLog),
		"7/day":            headgate.Per(7, 24*hour).WithBurst(9),
		"7/week":           headgate.Per(7, 7*24*hour).WithAlgorithm(headgate.FixedWindow),
		"6/30d":            headgate.Per(6, 30*24*hour),
		"300/3h":           headgate.Per(300, 3*hour),
		"300/1h30m":        headgate.Per(300, 3*hour/2),
		"2/1m1s":           headgate.Per(2, 61*time.Second),
		"0/minute":         headgate.Per(0, time.Minute),
		"unlimited":        headgate.Unlimited(),
		"3/minute":         headgate.Concurrent(3).WithLease(time.Minute),
		"8/month":          headgate.PerCalendar(8, headgate.Month, time.UTC),
		"9/week":           headgate.PerCalendar(9, headgate.Week, time.UTC),
		"10000/100ms":      headgate.Per(10_000, 100*time.Millisecond),
		"1000000/168h0m1s": headgate.Per(1_000_000, 168*hour+time.Second),
	} {
		if got := rateText(limit); got != want {
			t.Errorf("%v: %q, want %q", limit, got, want)
		}
	}
}
