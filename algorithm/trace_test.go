package algorithm

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// example is a documented trace: the answers of a limit to requests on one key.
type example struct {
	name  string
	limit headgate.Limit
	rows  []row
}

// row is a request and its answer. Empty fields are not compared.
type row struct {
	at   string // hh:mm:ss[.fraction] of 2026-01-01 UTC
	cost int64
	kind store.Kind
	// want is "pass" or "refused", followed by other promises: "left 3", "retry 15s",
	// "delay 1s", "granted 2".
	want string
}

// examples returns the worked examples of docs/rules/algorithms.md, with its numbers.
func examples() []example {
	take, peek, charge := store.KindTake, store.KindPeek, store.KindCharge
	edge := []row{{"11:00:59", 5, take, "pass, left 0"}}
	return []example{
		{"token bucket of 4, refilled 4 per minute", headgate.PerMinute(4), []row{
			{"11:00:00", 1, take, "pass, left 3"},
			{"11:00:00", 1, take, "pass, left 2"},
			{"11:00:00", 1, take, "pass, left 1"},
			{"11:00:00", 1, take, "pass, left 0, reset 1m0s"},
			{"11:00:00", 1, take, "refused, left 0, retry 15s, reset 1m0s"},
			{"11:00:14.999999", 1, take, "refused, retry 1µs"},
			{"11:00:15", 1, take, "pass, left 0"},
			{"11:00:40", 1, take, "pass, left 0"},
			{"11:00:44.999999", 1, take, "refused, retry 1µs"},
			{"11:00:45", 2, take, "refused, left 1, retry 15s"},
			{"11:02:00", 4, take, "pass, left 0"},
			{"11:02:00", 5, take, "refused, left 0, retry never"},
		}},
		{"token bucket of 500, a token every 0.01s", headgate.PerSecond(100).WithBurst(500), []row{
			{"11:00:00", 500, take, "pass, left 0, reset 5s"},
			{"11:00:00", 1, take, "refused, retry 10ms"},
			{"11:00:00.01", 1, take, "pass, left 0"},
			{"11:00:01.01", 100, take, "pass, left 0"},
			{"11:00:01.01", 1, take, "refused, retry 10ms"},
			{"11:00:06.01", 500, take, "pass, left 0"},
		}},
		{"200 per day, one every 432s", headgate.PerDay(200), []row{
			{"00:00:00", 200, take, "pass, left 0, reset 24h0m0s"},
			{"00:00:00", 1, take, "refused, retry 7m12s"},
			{"00:07:11.999999", 1, take, "refused, retry 1µs"},
			{"00:07:12", 1, take, "pass, left 0"},
			{"12:07:12", 100, take, "pass, left 0"},
			{"12:07:12", 1, take, "refused, retry 7m12s"},
		}},
		{"60 per minute in steps of 10s, burst 20", headgate.PerMinute(60).WithBurst(20).WithRefillEvery(10 * time.Second), []row{
			{"11:00:04", 20, take, "pass, left 0, reset 16s"},
			{"11:00:04", 1, take, "refused, left 0, retry 6s, reset 16s"},
			{"11:00:09.999999", 1, take, "refused, left 0, retry 1µs, reset 10.000001s"},
			{"11:00:10", 4, take, "pass, left 6, reset 20s"},
			{"11:00:19.999999", 7, take, "refused, left 6, retry 1µs, reset 10.000001s"},
			{"11:00:20", 1, take, "pass, left 15, reset 10s"},
			{"11:00:30", 0, peek, "pass, left 20, reset 0s"},
		}},
		{"10 per minute in steps of 7s: 7/6 of a token each", headgate.PerMinute(10).WithRefillEvery(7 * time.Second), []row{
			{"11:00:00", 10, take, "pass, left 0"}, // 6 s before a multiple of 7 s since the epoch
			{"11:00:05.999999", 1, take, "refused, left 0, retry 1µs"},
			{"11:00:06", 0, peek, "pass, left 1"},
			{"11:00:34", 0, peek, "pass, left 5"},
			{"11:00:41", 0, peek, "pass, left 7"}, // the sixth: 6 × 7/6
		}},
		{"5 per minute in a step of a minute is a fixed window", headgate.PerMinute(5).WithRefillEvery(time.Minute), []row{
			{"11:00:59", 5, take, "pass, left 0, reset 1s"},
			{"11:00:59", 1, take, "refused, retry 1s"},
			{"11:01:00", 5, take, "pass, left 0, reset 1m0s"},
			{"11:01:00", 1, take, "refused, retry 1m0s"},
		}},
		{"leaky bucket with 3 places, one leaves a second", headgate.PerSecond(1).WithAlgorithm(store.LeakyBucket).WithBurst(3), []row{
			{"11:00:00", 1, take, "pass, delay 0s"},
			{"11:00:00", 1, take, "pass, delay 1s"},
			{"11:00:00", 1, take, "pass, delay 2s"},
			{"11:00:00", 1, take, "refused, retry 1s"},
			{"11:00:01", 1, take, "pass, delay 2s"},
			{"11:00:02.5", 1, take, "pass, delay 1.5s"},
		}},
		// The example of two stages in nginx's documentation, rate=5r/s burst=12
		// delay=8: of 15 requests 8 pass at once, 4 are delayed and 3 are refused.
		{"two stages: of 15 together 8 pass, 4 wait and 3 are refused", headgate.PerSecond(5).WithAlgorithm(store.LeakyBucket).WithBurst(12).WithDelayAfter(8), slices.Concat(
			slices.Repeat([]row{{"11:00:00", 1, take, "pass, delay 0s"}}, 8),
			[]row{
				{"11:00:00", 1, take, "pass, delay 200ms, left 3"},
				{"11:00:00", 1, take, "pass, delay 400ms"},
				{"11:00:00", 1, take, "pass, delay 600ms"},
				{"11:00:00", 1, take, "pass, delay 800ms, left 0"},
			},
			slices.Repeat([]row{{"11:00:00", 1, take, "refused, retry 200ms"}}, 3),
			[]row{
				{"11:00:00.199999", 1, take, "refused, retry 1µs"},
				{"11:00:00.2", 1, take, "pass, delay 800ms"},
				{"11:00:01", 1, take, "pass, delay 200ms, left 3"},
				{"11:00:03.4", 8, take, "pass, delay 0s, left 4"},
			},
		)},
		{"a turn more than 450ms away is refused", headgate.PerSecond(5).WithAlgorithm(store.LeakyBucket).WithBurst(12).WithMaxWait(450 * time.Millisecond), []row{
			{"11:00:00", 1, take, "pass, delay 0s, left 2"},
			{"11:00:00", 1, take, "pass, delay 200ms, left 1"},
			{"11:00:00", 1, take, "pass, delay 400ms, left 0"},
			{"11:00:00", 1, take, "refused, retry 150ms, left 0"},
			{"11:00:00.149999", 1, take, "refused, retry 1µs"},
			{"11:00:00.15", 1, peek, "pass"},
			{"11:00:00.15", 11, take, "refused, retry 250ms"},
			{"11:00:00.15", 1, take, "pass, delay 450ms"},
			{"11:00:02", 12, take, "pass, delay 0s, left 0"},
		}},
		{
			"fixed window, 5 per minute: 10 pass around the edge, its known weakness",
			headgate.PerMinute(5).WithAlgorithm(store.FixedWindow),
			append(
				edge[:1:1], row{"11:00:59", 1, take, "refused, retry 1s"},
				row{"11:01:00", 5, take, "pass, left 0"}, row{"11:01:00", 1, take, "refused, retry 1m0s"},
			),
		},
		{
			"sliding window, 5 per minute: 5 pass around the edge", headgate.PerMinute(5).WithAlgorithm(store.SlidingWindow),
			append(
				edge[:1:1], row{"11:01:00", 5, take, "refused, left 0, retry 48.000001s"},
				row{"11:01:00", 1, take, "refused, retry 1µs"}, row{"11:01:00.000001", 1, take, "pass, left 0"},
			),
		},
		{
			"sliding log, 5 per minute: 5 pass around the edge", headgate.PerMinute(5).WithAlgorithm(store.SlidingLog),
			append(
				edge[:1:1], row{"11:01:00", 1, take, "refused, retry 59s"},
				row{"11:01:58.999999", 1, take, "refused, retry 1µs"}, row{"11:01:59", 5, take, "pass, left 0"},
			),
		},
		{
			"sliding buckets, 5 per minute: 5 pass around the edge", headgate.PerMinute(5).WithAlgorithm(store.SlidingBuckets),
			append(
				edge[:1:1], row{"11:01:00", 1, take, "refused, retry 59.000001s"},
				row{"11:01:59", 1, take, "refused, retry 1µs"}, row{"11:01:59.5", 5, take, "refused, left 3"},
				row{"11:02:00", 5, take, "pass, left 0"},
			),
		},
		{"sliding log, 2 per minute, counting refusals", headgate.PerMinute(2).WithAlgorithm(store.SlidingLog).WithRefusalsCounted(), []row{
			{"01:00:01", 1, take, "pass"},
			{"01:00:30", 1, take, "pass"},
			{"01:00:50", 1, take, "refused"},
			{"01:01:40", 1, take, "pass"},
		}},
		{
			"sliding window, 7 per minute, previous 5, current 3, 30% into the window",
			headgate.PerMinute(7).WithAlgorithm(store.SlidingWindow),
			[]row{
				{"10:00:10", 5, take, "pass, left 2"},
				{"10:01:00", 2, take, "pass, left 0"},
				{"10:01:17.999999", 1, take, "pass, left 1"},
				{"10:01:18", 0, peek, "pass, left 1"}, // 3 + 5×0.7 = 6.5 → 6 are used
				{"10:01:18", 1, take, "pass, left 0"},
				{"10:01:18", 1, take, "refused"},
			},
		},
		{
			"sliding buckets, lenient, hourly, asked at 11:00:35: 10:00:00 to 10:00:59 is left out",
			hourly(store.EdgeLenient),
			[]row{
				{"10:00:59", 5, take, "pass, left 5"},
				{"10:30:00", 5, take, "pass, left 0"},
				{"11:00:00", 1, take, "refused, retry 1µs"},
				{"11:00:35", 1, peek, "pass, left 5"},
			},
		},
		{
			"sliding buckets, strict, hourly, asked at 11:00:35: 10:00:00 to 10:00:59 is counted whole",
			hourly(store.EdgeStrict),
			[]row{
				{"10:00:01", 5, take, "pass, left 5"},
				{"10:30:00", 5, take, "pass, left 0"},
				{"11:00:35", 1, take, "refused, left 0, retry 25s"},
				{"11:01:00", 1, peek, "pass, left 5"},
			},
		},
		{
			"sliding buckets, weighted, hourly, asked at 11:00:35: 25/60 of 10:00:00 to 10:00:59 are counted",
			hourly(store.EdgeWeighted),
			[]row{
				{"10:00:01", 5, take, "pass, left 5"},
				{"10:30:00", 5, take, "pass, left 0"},
				{"11:00:35", 1, peek, "pass, left 3"}, // 5×25/60 = 2.08 → 2
			},
		},
		{
			"fixed window from the first request", headgate.PerMinute(2).WithAlgorithm(store.FixedWindow).WithAnchor(store.AnchorFirstRequest),
			[]row{
				{"11:00:40", 1, take, "pass, left 1"},
				{"11:01:10", 1, take, "pass, left 0"},
				{"11:01:39.999999", 1, take, "refused, retry 1µs"},
				{"11:01:40", 1, take, "pass, left 1"},
			},
		},
		{"a post-paid debt is waited out", headgate.PerMinute(4), []row{
			{"11:00:00", 10, charge, "refused, left 0, retry 1m30s"},
			{"11:01:29.999999", 0, take, "refused, retry 1µs"},
			{"11:01:30", 0, take, "pass, left 0"},
			{"11:01:45", 1, take, "pass, left 0"},
		}},
	}
}

func hourly(e store.Edge) headgate.Limit {
	return headgate.PerHour(10).WithAlgorithm(store.SlidingBuckets).WithBuckets(60, e)
}

func TestExamples(t *testing.T) {
	for _, e := range append(examples(), deniedExamples()...) {
		t.Run(e.name, func(t *testing.T) {
			var s State
			for _, r := range e.rows {
				got := Step(e.limit.Rule(), &s, clock(t, r.at), Request{Kind: r.kind, Cost: r.cost})
				for want := range strings.SplitSeq(r.want, ", ") {
					if !promised(got, want) {
						t.Errorf("%s %s %d: want %s, got %s", r.at, r.kind, r.cost, r.want, show(got))
					}
				}
			}
		})
	}
}

// promised reports whether an answer has one of the properties of row.want.
func promised(got Result, want string) bool {
	name, value, _ := strings.Cut(want, " ")
	switch name {
	case "pass", "refused":
		return got.Allowed == (name == "pass")
	case "left":
		return strconv.FormatInt(got.Remaining, 10) == value
	case "retry":
		if value == "never" {
			return got.RetryAfter == store.Never
		}
		return got.RetryAfter.String() == value
	case "reset":
		return got.ResetAfter.String() == value
	case "delay":
		return got.Delay.String() == value
	case "granted":
		return strconv.FormatInt(got.Granted, 10) == value
	}
	return false
}

// clock returns the time of 2026-01-01, or of a date before it, in microseconds.
func clock(t *testing.T, hms string) int64 {
	t.Helper()
	if !strings.Contains(hms, "-") {
		hms = "2026-01-01 " + hms
	}
	at, err := time.Parse("2006-01-02 15:04:05", hms)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMicro()
}
