package algorithm

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// TestSpansAddUp: the spans add up to the usage of the limit, whatever was done to the
// state, even after a change of the limit.
func TestSpansAddUp(t *testing.T) {
	rng := newRand(t)
	windows := []store.Algorithm{store.FixedWindow, store.SlidingLog, store.SlidingWindow, store.SlidingBuckets}
	for run := range 400 {
		a := windows[run%len(windows)]
		limit := randomLimit(rng, a)
		var s State
		now := int64(t0)
		for step := range 60 {
			now += rng.Int64N(max(limit.Rule().Period/8, 1))
			if rng.IntN(8) == 0 {
				now -= rng.Int64N(limit.Rule().Period)
			}
			Step(limit.Rule(), &s, now, Request{Kind: pick(rng, store.KindTake, store.KindCharge, store.KindRefund), Cost: rng.Int64N(4)})
			spans := Spans(limit.Rule(), &s, now, nil)
			sum := int64(0)
			for _, span := range spans {
				sum += span.Counts
				if span.Count <= 0 || span.Counts > span.Count || span.Start >= span.End {
					t.Fatalf("%s, step %d: %+v", limit, step, span)
				}
			}
			if used := limit.N() - available(limit.Rule(), &s, now); sum != used {
				t.Fatalf("%s, step %d: %v add up to %d, in use are %d", limit, step, spans, sum, used)
			}
			if rng.IntN(30) == 0 && a != store.SlidingLog {
				limit = changed(rng, limit)
			}
		}
	}
}

func changed(rng *rand.Rand, l headgate.Limit) headgate.Limit {
	if l.Rule().Calendar != store.NoCalendar {
		return l
	}
	next := headgate.Per(l.N()+1, l.Period()*2).WithAlgorithm(l.Algorithm())
	if l.Algorithm() == store.SlidingBuckets {
		next = next.WithBuckets(1+rng.IntN(20), l.Rule().Edge)
	}
	if !next.Rule().Valid() {
		return l
	}
	return next
}

func TestSpansOfTheWorkedExamples(t *testing.T) {
	const minute, hour = 60_000_000, 3_600_000_000
	take := func(limit headgate.Limit, costs ...[2]int64) (s State) {
		for _, c := range costs {
			if !Step(limit.Rule(), &s, t0+c[0], Request{Cost: c[1]}).Allowed {
				t.Fatalf("%s: %v is refused", limit, c)
			}
		}
		return s
	}
	rows := []struct {
		name  string
		limit headgate.Limit
		takes [][2]int64
		at    int64
		want  []Span
	}{
		{
			"two counters, 30% into the window", headgate.PerMinute(7).WithAlgorithm(store.SlidingWindow),
			[][2]int64{{10_000_000, 5}, {minute, 2}, {minute + 18_000_000, 1}},
			minute + 18_000_000,
			[]Span{{t0, t0 + minute, 5, 3}, {t0 + minute, t0 + 2*minute, 3, 3}},
		},
		{
			"a fixed window", headgate.PerMinute(5).WithAlgorithm(store.FixedWindow),
			[][2]int64{{59_000_000, 5}},
			59_500_000,
			[]Span{{t0, t0 + minute, 5, 5}},
		},
		{
			"and its end", headgate.PerMinute(5).WithAlgorithm(store.FixedWindow),
			[][2]int64{{59_000_000, 5}},
			minute, nil,
		},
		{
			"a log", headgate.PerMinute(5).WithAlgorithm(store.SlidingLog),
			[][2]int64{{0, 2}, {minute - 1, 1}},
			minute,
			[]Span{{t0 + minute - 1, t0 + 2*minute - 1, 1, 1}},
		},
		{
			"sub-windows, of which the oldest has faded to 25/60", headgate.PerHour(10).WithAlgorithm(store.SlidingBuckets),
			[][2]int64{{1_000_000, 5}, {hour / 2, 5}},
			hour + 35_000_000,
			[]Span{{t0, t0 + minute, 5, 2}, {t0 + hour/2, t0 + hour/2 + minute, 5, 5}},
		},
		{
			"sub-windows under a clock that has gone back behind the newest", headgate.PerMinute(10).WithAlgorithm(store.SlidingBuckets).WithBuckets(7, store.EdgeLenient),
			[][2]int64{{0, 5}, {55_000_000, 1}},
			40_000_000,
			[]Span{{t0 - 5_924_439, t0 + 2_646_990, 5, 0}, {t0 + 54_075_564, t0 + 62_646_993, 1, 1}},
		},
		{"a bucket has no parts", headgate.PerMinute(5), [][2]int64{{0, 2}}, 1, nil},
	}
	for _, row := range rows {
		s := take(row.limit, row.takes...)
		if got := Spans(row.limit.Rule(), &s, t0+row.at, nil); !slices.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}
