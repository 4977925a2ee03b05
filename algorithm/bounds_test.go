package algorithm_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// The worst case of a caller who knows the algorithm: the most that passes in a window
// of the period, as a multiple of the limit of 50, and in one that is a sub-window
// shorter. docs/rules/algorithms.md states both.
const (
	boundLimit  = 50
	boundPeriod = 60_000_000
	boundWidth  = boundPeriod / 10
)

func boundCases() []struct {
	limit          headgate.Limit
	period, nearly int
} {
	per := headgate.PerMinute(boundLimit)
	buckets := per.WithAlgorithm(store.SlidingBuckets)
	return []struct {
		limit          headgate.Limit
		period, nearly int
	}{
		{per, 2 * boundLimit, 2 * boundLimit},
		{per.WithAlgorithm(store.LeakyBucket), 2 * boundLimit, 2 * boundLimit},
		{per.WithAlgorithm(store.FixedWindow), 2 * boundLimit, 2 * boundLimit},
		{per.WithAlgorithm(store.FixedWindow).WithAnchor(store.AnchorFirstRequest), 2 * boundLimit, 2 * boundLimit},
		{per.WithAlgorithm(store.SlidingLog), boundLimit, boundLimit},
		{per.WithAlgorithm(store.SlidingWindow), 2 * boundLimit, 2 * boundLimit},
		{buckets.WithBuckets(10, store.EdgeWeighted), 2 * boundLimit, boundLimit},
		{buckets.WithBuckets(10, store.EdgeLenient), 2 * boundLimit, boundLimit},
		{buckets.WithBuckets(10, store.EdgeStrict), boundLimit, boundLimit},
	}
}

// hammer sends requests at all times and returns the times of the admitted ones.
func hammer(r *store.Rule, times []int64) (admitted []int64) {
	var st algorithm.State
	for _, now := range times {
		if algorithm.Step(r, &st, now, algorithm.Request{Kind: store.KindTake, Cost: 1}).Allowed {
			admitted = append(admitted, now)
		}
	}
	return admitted
}

// most returns the largest number of times in any window of a length.
func most(times []int64, length int64) (n int) {
	first := 0
	for i, t := range times {
		for times[first] <= t-length {
			first++
		}
		n = max(n, i-first+1)
	}
	return n
}

// bursts returns the times of a caller that requests everything at some times, and is
// silent or sends requests evenly in between. Corners are the edges of sub-windows, a
// microsecond before and after.
func bursts(r *rand.Rand) (times []int64) {
	const begin = 100 * boundPeriod
	for range 1 + r.IntN(6) {
		at := begin + r.Int64N(4*boundPeriod)
		if r.IntN(3) > 0 {
			at = at/boundWidth*boundWidth + r.Int64N(3) - 1
		}
		times = append(times, slices.Repeat([]int64{at}, boundLimit+1)...)
	}
	if r.IntN(2) == 0 {
		from, step := begin+r.Int64N(2*boundPeriod), boundPeriod/(1+r.Int64N(10*boundLimit))
		for t := from; t < from+2*boundPeriod; t += step {
			times = append(times, t, t/boundWidth*boundWidth, (t/boundWidth+1)*boundWidth-1)
		}
	}
	slices.Sort(times)
	return times
}

// TestBoundsHold searches for traffic that passes more than promised, and has an
// example of each limit being reached.
func TestBoundsHold(t *testing.T) {
	for _, c := range boundCases() {
		rule := c.limit.Rule()
		best, nearly := 0, 0
		for seed := range uint64(400) {
			admitted := hammer(rule, bursts(rand.New(rand.NewPCG(seed, 7))))
			best, nearly = max(best, most(admitted, boundPeriod)), max(nearly, most(admitted, boundPeriod-boundWidth))
		}
		// All at the end of a sub-window, then as soon as possible.
		times := slices.Repeat([]int64{101*boundPeriod - 1}, boundLimit)
		for at := int64(101 * boundPeriod); at < 102*boundPeriod+boundWidth; at += boundWidth / 200 {
			times = append(times, at)
			if at%boundWidth == 0 {
				times = append(times, slices.Repeat([]int64{at}, boundLimit)...)
			}
		}
		// And all at the start and the end of one.
		example := max(most(hammer(rule, times), boundPeriod), most(hammer(rule, times[:2*boundLimit+1]), boundPeriod), best)
		if best > c.period || example > c.period {
			t.Errorf("%s: %d and %d in a period, promised %d", c.limit, best, example, c.period)
		}
		if nearly > c.nearly {
			t.Errorf("%s: %d in a period less a sub-window, promised %d", c.limit, nearly, c.nearly)
		}
		if example < c.period-1 {
			t.Errorf("%s: no more than %d in a period, and %d are conceded", c.limit, example, c.period)
		}
	}
}

// TestSlidingWindowBetween: in any stretch of w the two counters admit at most limit ×
// (1 + w/period) + 1.
func TestSlidingWindowBetween(t *testing.T) {
	rule := headgate.PerMinute(boundLimit).WithAlgorithm(store.SlidingWindow).Rule()
	for seed := range uint64(200) {
		admitted := hammer(rule, bursts(rand.New(rand.NewPCG(seed, 8))))
		for w := int64(1); w <= boundPeriod; w += boundPeriod / 37 {
			if n := most(admitted, w); int64(n)*boundPeriod > boundLimit*(boundPeriod+w)+boundPeriod {
				t.Fatalf("seed %d: %d in %d µs", seed, n, w)
			}
		}
	}
}
