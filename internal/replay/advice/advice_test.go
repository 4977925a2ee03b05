package advice_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/replay/advice"
)

// erlangB is the share of calls that n lines lose under a load of a: Erlang 1917. It does not
// depend on how long calls are, if all are as long: a sliding log is n lines, and a bucket of
// one token is one.
func erlangB(n int, a float64) float64 {
	b := 1.0
	for k := 1; k <= n; k++ {
		b = a * b / (float64(k) + a*b)
	}
	return b
}

// overflow is the share of requests above n in windows with a Poisson number of them, a on
// average.
func overflow(n int, a float64) float64 {
	lost, p := 0.0, math.Exp(-a)
	for k := 1; k < 20*n+200; k++ {
		p *= a / float64(k)
		lost += float64(max(k-n, 0)) * p
	}
	return lost / a
}

// What the simulation finds is what queueing theory says.
func TestSharesAreTheorys(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		limit headgate.Limit
		want  float64
	}{
		{headgate.PerMinute(5).Using(headgate.SlidingLog), erlangB(5, 4)},
		{headgate.PerMinute(20).Using(headgate.SlidingLog), erlangB(20, 16)},
		{headgate.PerSecond(100).Using(headgate.SlidingLog), erlangB(100, 80)},
		{headgate.PerMinute(10).Burst(1), erlangB(1, 0.8)},
		{headgate.PerMinute(5).Using(headgate.FixedWindow), overflow(5, 4)},
		{headgate.PerHour(50).Using(headgate.FixedWindow), overflow(50, 40)},
	} {
		a, ok := advice.Of(tt.limit)
		if got := a.Steady.Refused; !ok || math.Abs(got-tt.want) > 0.01 {
			t.Errorf("%s: refuses %.4f, want %.4f", tt.limit, got, tt.want)
		}
	}
}

// The advised burst serves both kinds of clients, the next smaller one does not, and the rate
// stays.
func TestBetterIsTheSmallest(t *testing.T) {
	t.Parallel()
	for _, limit := range []headgate.Limit{
		headgate.PerMinute(5), headgate.PerSecond(100).Burst(1), headgate.PerMinute(60).Using(headgate.LeakyBucket).Burst(5),
		headgate.PerDay(20).Using(headgate.FixedWindow), headgate.PerHour(10).Using(headgate.SlidingBuckets),
	} {
		a, ok := advice.Of(limit)
		if !ok || a.Better == nil {
			t.Errorf("%s: %+v", limit, a)
			continue
		}
		b := a.Better
		smaller := b.Burst / 2 // of 1, 2, 5, 10, …
		if strconv.FormatInt(b.Burst, 10)[0] == '5' {
			smaller = b.Burst / 5 * 2
		}
		if b.Steady.Refused > 0.001 || b.Bursty.Refused > 0.001 || b.AtMost != limit.N()+b.Burst || smaller == 0 {
			t.Errorf("%s: %+v", limit, b)
		}
		if limit.Algorithm() > headgate.LeakyBucket {
			limit = headgate.Per(limit.N(), limit.Period())
		}
		less, _ := advice.Of(limit.Burst(smaller))
		if less.Steady.Refused <= 0.001 && less.Bursty.Refused <= 0.001 {
			t.Errorf("%s: a burst of %d serves them as well", limit, smaller)
		}
	}
}

func TestWithoutAdvice(t *testing.T) {
	t.Parallel()
	for _, limit := range []headgate.Limit{{}, headgate.Unlimited(), headgate.PerMinute(0), headgate.Concurrent(5), headgate.PerHour(20).Using(headgate.Distinct)} {
		if a, ok := advice.Of(limit); ok {
			t.Errorf("%v: %+v", limit, a)
		}
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	a, _ := advice.Of(headgate.PerMinute(60).Burst(10))
	again, _ := advice.Of(headgate.PerMinute(60).Burst(10))
	if a.String() != again.String() {
		t.Errorf("%s, then %s", a, again)
	}
	const want = "Refuses 0.4% of the requests of steady clients, and 23% of clients that send 10 at once; " +
		"a token bucket with a burst of 50 would refuse under 0.1%, and let up to 110 pass within one period."
	if got := a.String(); got != want {
		t.Errorf("%s", got)
	}
	good, _ := advice.Of(headgate.PerSecond(1000))
	if got := good.String(); got != "Refuses 0% of the requests of steady clients, and 0% of clients that send 10 at once." {
		t.Errorf("%s", got)
	}
}

func BenchmarkOf(b *testing.B) {
	for _, limit := range []headgate.Limit{headgate.PerMinute(5), headgate.PerHour(1000).Using(headgate.SlidingLog)} {
		b.Run(limit.Algorithm().String(), func(b *testing.B) {
			for b.Loop() {
				advice.Of(limit)
			}
		})
	}
}
