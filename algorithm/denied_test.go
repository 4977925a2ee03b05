package algorithm

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// deniedExamples are those of docs/rules/algorithms.md for limits that count refusals.
func deniedExamples() []example {
	take := store.KindTake
	five := headgate.PerMinute(5)
	return []example{
		{"sliding window, 5 per minute, counting refusals", five.WithAlgorithm(store.SlidingWindow).WithRefusalsCounted(), slices.Concat(
			[]row{{"11:00:59", 5, take, "pass, left 0"}},
			slices.Repeat([]row{{"11:00:59", 1, take, "refused, left 0"}}, 9),
			[]row{
				// 15 × 1/3 = 5, and then less.
				{"11:00:59", 1, take, "refused, retry 41.000001s"},
				{"11:01:40.000001", 1, take, "pass, left 0"},
			},
		)},
		{"sliding buckets, 10 per hour, counting refusals", hourly(store.EdgeLenient).WithRefusalsCounted(), []row{
			{"10:00:30", 10, take, "pass, left 0"},
			{"10:30:00", 1, take, "refused, retry 30m0.000001s"},
			{"10:30:00", 10, take, "refused, retry 1h0m0.000001s"},
			{"11:30:00", 1, take, "refused, retry 1µs"}, // if it were the last
		}},
		{"fixed window, 5 per minute, counting refusals: it ends all the same", five.WithAlgorithm(store.FixedWindow).WithRefusalsCounted(), []row{
			{"11:00:00", 3, take, "pass, left 2"},
			{"11:00:01", 3, take, "refused, left 0, retry 59s"},
			{"11:00:02", 1, take, "refused, left 0, retry 58s"},
			{"11:01:00", 5, take, "pass, left 0"},
		}},
	}
}

// deniedCorners are rare cases of limits that count refusals.
func deniedCorners() []corner {
	per := func(n int64, a store.Algorithm) headgate.Limit {
		return headgate.PerMinute(n).WithAlgorithm(a).WithRefusalsCounted()
	}
	strict := headgate.PerHour(10).WithAlgorithm(store.SlidingBuckets).WithBuckets(60, store.EdgeStrict).WithRefusalsCounted()
	return []corner{
		{"a return gives back the take and no refusal", per(5, store.SlidingWindow), []ask{
			{"11:00:00", takes(5), "pass, reset 1m48.000001s"},
			{"11:00:10", takes(3), "refused"},
			{"11:00:10", returns(5, 98*time.Second+time.Microsecond), "left 2"},
		}},
		{"the same of a fixed window", per(5, store.FixedWindow), []ask{
			{"11:00:00", takes(5), "pass, reset 1m0s"},
			{"11:00:10", takes(3), "refused"},
			{"11:00:10", returns(5, 50*time.Second), "left 2"},
		}},
		{"the same of sub-windows", strict, []ask{
			{"11:00:00", takes(10), "pass, reset 1h1m0s"},
			{"11:10:00", takes(7), "refused, retry 1h1m0s"},
			{"11:10:00", returns(10, 51*time.Minute), "left 3"},
		}},
		{"the same of a log that has dropped the take", per(2, store.SlidingLog), []ask{
			{"11:00:00", takes(2), "pass, reset 1m0s"},
			{"11:00:10", takes(2), "refused, retry 1m0s"},
			{"11:00:10", returns(2, 50*time.Second), "left 0, reset 1m0s"},
			{"11:00:20", takes(1), "refused"},
		}},
		{"a return that finds nothing forgets nothing, if the clock goes back", per(2, store.SlidingLog), []ask{
			{"11:00:00", takes(2), "pass, reset 1m0s"},
			{"11:00:30", takes(1), "refused, retry 30s"},
			{"11:01:00", returns(2, 10*time.Second), "left 1, reset 30s"},
			{"11:00:59.999999", peeks(1), "refused, left 0, retry 1µs"},
		}},
		{"a refusal counts as no more than the limit", per(5, store.SlidingWindow), []ask{
			{"11:00:00", takes(huge), "refused, retry never"},
			{"11:00:00", peeks(1), "refused, left 0, retry 1m0.000001s"},
			{"11:01:00.000001", takes(1), "pass, left 0"},
		}},
		{"nothing granted counts as 1", per(5, store.SlidingWindow), []ask{
			{"11:00:00", request{Request: Request{Kind: store.KindTakeUpTo, Cost: 9}}, "pass, granted 5, left 0"},
			{"11:00:00", request{Request: Request{Kind: store.KindTakeUpTo, Cost: 9}}, "refused, granted 0, retry 1m10.000001s"},
		}},
		{"a dry run counts nothing", per(5, store.FixedWindow), []ask{
			{"11:00:00", takes(5), "pass"},
			{"11:00:00", peeks(1), "refused"},
			{"11:00:00", takes(0), "pass"},
			{"11:00:00", returns(1, time.Minute), "left 1"},
		}},
		{"a credit of which too little is left", per(5, store.SlidingWindow), []ask{
			{"11:00:00", takes(5), "pass"},
			{"11:00:00", grants(3, time.Hour), "granted 3"},
			{"11:00:00", takes(4), "refused, left 3"},
			{"11:00:00", takes(3), "pass, left 0"},
			{"11:00:00", returns(4, 90*time.Second), "left 0"},
		}},
		{"a limit of 0 counts nothing", headgate.PerMinute(0).WithAlgorithm(store.FixedWindow).WithRefusalsCounted(), []ask{
			{"11:00:00", takes(1), "refused, retry never, reset 0s"},
		}},
		{"a count that is full", headgate.Per(store.MaxLimit, time.Minute).WithAlgorithm(store.SlidingWindow).WithRefusalsCounted(), []ask{
			{"11:00:00", charges(maxCount), "refused"},
			{"11:00:00", takes(store.MaxLimit), "refused"},
			{"11:00:00", takes(1), "refused"},
		}},
	}
}

// TestHammeringStaysOut: who keeps asking twice as often as allowed passes no more
// after the first limit, until it stops for as long as RetryAfter says.
func TestHammeringStaysOut(t *testing.T) {
	per := headgate.PerMinute(30)
	buckets := per.WithAlgorithm(store.SlidingBuckets)
	for _, limit := range []headgate.Limit{
		per.WithAlgorithm(store.SlidingLog), per.WithAlgorithm(store.SlidingWindow), buckets.WithBuckets(60, store.EdgeWeighted),
		buckets.WithBuckets(6, store.EdgeLenient), buckets.WithBuckets(6, store.EdgeStrict),
	} {
		r := limit.WithRefusalsCounted().Rule()
		var s State
		passed, now := 0, int64(t0)
		var last Result
		for ; now < t0+10*60_000_000; now += 1_000_000 {
			if last = Step(r, &s, now, Request{Cost: 1}); last.Allowed {
				passed++
			}
		}
		if passed != 30 {
			t.Errorf("%s: %d passed in 10 minutes, want the first 30", limit, passed)
		}
		now += int64(last.RetryAfter/time.Microsecond) - 1_000_000
		if early := clone(&s); Step(r, &early, now-1, Request{Cost: 1}).Allowed {
			t.Errorf("%s: allowed before RetryAfter", limit)
		}
		if !Step(r, &s, now, Request{Cost: 1}).Allowed {
			t.Errorf("%s: refused after it had stopped for %v", limit, last.RetryAfter)
		}
	}
}

// TestAFixedWindowEndsAllTheSame: for requests of cost 1 a fixed window gives the same
// verdicts whether refusals count or not.
func TestAFixedWindowEndsAllTheSame(t *testing.T) {
	rng := newRand(t)
	for range 50 {
		limit := headgate.Per(1+rng.Int64N(9), time.Second).WithAlgorithm(store.FixedWindow)
		if rng.IntN(2) == 0 {
			limit = limit.WithAnchor(store.AnchorFirstRequest)
		}
		var a, b State
		for now := int64(t0); now < t0+5_000_000; now += rng.Int64N(100_000) {
			one, two := Step(limit.Rule(), &a, now, Request{Cost: 1}), Step(limit.WithRefusalsCounted().Rule(), &b, now, Request{Cost: 1})
			if one.Decision != two.Decision {
				t.Fatalf("%s at %d: %s, counting refusals %s", limit, now, show(one), show(two))
			}
		}
	}
}

// TestFigmasLimiter compares sliding buckets with the limiter that Figma described in
// 2017: a hash of counters, one a minute, of which each request first increments that of
// its minute and then adds up those of the last hour.
func TestFigmasLimiter(t *testing.T) {
	const minute, hour = 60_000_000, 3_600_000_000
	rng := newRand(t)
	passed, refused := 0, 0
	for range 20 {
		n := 1 + rng.Int64N(200)
		r := headgate.PerHour(n).WithAlgorithm(store.SlidingBuckets).WithBuckets(60, store.EdgeLenient).WithRefusalsCounted().Rule()
		hash, now := make(map[int64]int64), int64(t0)
		var s State
		for range 3000 {
			now += near(rng, 0, 4*hour/n)
			hash[now/minute]++
			sum := int64(0)
			for m, count := range hash {
				if m*minute >= now-hour {
					sum += count
				}
			}
			got := Step(r, &s, now, Request{Cost: 1})
			if got.Allowed != (sum <= n) {
				t.Fatalf("%d per hour: %d in the last hour, and %s", n, sum, show(got))
			}
			if got.Allowed {
				passed++
			} else {
				refused++
			}
		}
	}
	if passed < 1000 || refused < 1000 {
		t.Errorf("one-sided: %d passed, %d refused", passed, refused)
	}
}
