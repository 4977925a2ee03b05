package algorithm

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// admission is a take that passed.
type admission struct{ at, count int64 }

// admissions sends random takes to a limit and returns those that passed. With a
// positive skew, the clock jumps back by up to skew; the time of an admission is then
// the latest time of any admitted request so far.
func admissions(rng *rand.Rand, limit headgate.Limit, takes int, skew int64) []admission {
	var s State
	var passed []admission
	now, latest := int64(t0)+rng.Int64N(1_000_000), int64(0)
	gap := max(limit.Rule().Period/(limit.N()+1), 1)
	for range takes {
		switch rng.IntN(6) {
		case 0:
			now += rng.Int64N(8 * gap)
		case 1, 2:
			now += rng.Int64N(gap + 1)
		case 3:
			now += rng.Int64N(3)
		}
		at := now
		if skew > 0 {
			at -= rng.Int64N(skew)
		}
		req := Request{Cost: 1 + rng.Int64N(3)}
		if rng.IntN(4) == 0 {
			req = Request{Kind: store.KindTakeUpTo, Cost: rng.Int64N(limit.Burst() + 2)}
		}
		if res := Step(limit.Rule(), &s, at, req); res.Allowed && res.Granted > 0 {
			latest = max(latest, at)
			passed = append(passed, admission{latest, res.Granted})
		}
	}
	return passed
}

// TestBucketBound: in any window of length w a bucket admits at most burst + rate·w,
// exactly (traps T1, T23), even if time runs backwards.
func TestBucketBound(t *testing.T) {
	rng := newRand(t)
	for run := range 300 {
		a := pick(rng, store.TokenBucket, store.LeakyBucket)
		limit := headgate.Per(1+rng.Int64N(50), micros(1+near(rng, 1000, 60_000_000))).WithAlgorithm(a).WithBurst(1 + rng.Int64N(20))
		skew := pick(rng, 0, limit.Rule().Period)
		passed := admissions(rng, limit, 150, skew)
		r := limit.Rule()
		for i := range passed {
			total := int64(0)
			for j := i; j < len(passed); j++ {
				total += passed[j].count
				// total ≤ burst + N/P·w, times P: exact, and far below 2^63 here.
				if w := passed[j].at - passed[i].at; total*r.Period > r.Burst*r.Period+r.Limit*w {
					t.Fatalf("run %d, %s: %d in %dµs", run, limit, total, w)
				}
			}
		}
	}
}

// TestWindowBound: no window of one period holds more than the limit under
// sliding_log and under sliding_buckets with a strict edge, and none holds more
// than twice the limit under any algorithm.
func TestWindowBound(t *testing.T) {
	rng := newRand(t)
	for range 400 {
		per := headgate.Per(1+rng.Int64N(40), micros(1000+near(rng, 1000, 60_000_000)))
		exact := rng.IntN(2) == 0
		limit := pick(
			rng, per.WithAlgorithm(store.FixedWindow), per.WithAlgorithm(store.SlidingWindow),
			per.WithAlgorithm(store.SlidingBuckets), per.WithAlgorithm(store.SlidingBuckets).WithBuckets(5, store.EdgeLenient),
		)
		most := 2 * limit.N()
		if exact {
			limit = pick(
				rng, per.WithAlgorithm(store.SlidingLog), per.WithAlgorithm(store.SlidingLog).WithRefusalsCounted(),
				per.WithAlgorithm(store.SlidingBuckets).WithBuckets(1+rng.IntN(90), store.EdgeStrict),
			)
			most = limit.N()
		}
		skew := int64(0)
		if limit.Algorithm() == store.SlidingLog {
			skew = limit.Rule().Period / 2
		}
		passed := admissions(rng, limit, 150, skew)
		for i := range passed {
			total := int64(0)
			for j := i; j < len(passed) && passed[j].at < passed[i].at+limit.Rule().Period; j++ {
				total += passed[j].count
			}
			if total > most {
				t.Fatalf("%s: %d in one period from %d: %v", limit, total, passed[i].at, passed)
			}
		}
	}
}

// TestLeakyQueueIsFirstInFirstOut: the turns of admitted requests come in order, one
// after another at the rate.
func TestLeakyQueueIsFirstInFirstOut(t *testing.T) {
	rng := newRand(t)
	limit := headgate.PerSecond(10).WithAlgorithm(store.LeakyBucket).WithBurst(7)
	var s State
	now, turn := int64(t0), int64(0)
	for range 5000 {
		now += rng.Int64N(200_000)
		res := Step(limit.Rule(), &s, now, Request{Cost: 1})
		if !res.Allowed {
			continue
		}
		at := now + int64(res.Delay/time.Microsecond)
		if at < turn+100_000 && turn != 0 {
			t.Fatalf("turns %dµs apart, want at least 100000", at-turn)
		}
		turn = at
	}
}

// TestLongRunRate: over a long time no token is lost or gained (trap T29).
func TestLongRunRate(t *testing.T) {
	for _, limit := range []headgate.Limit{
		headgate.Per(3, 7*time.Millisecond).WithBurst(9), headgate.Per(7, 11*time.Second).WithBurst(20), headgate.PerSecond(999_983),
		headgate.PerDay(1).WithBurst(3), headgate.Per(1<<40-1, 365*24*time.Hour),
		headgate.PerMinute(10).WithBurst(20).WithRefillEvery(7 * time.Second), headgate.PerSecond(3).WithBurst(40).WithRefillEvery(11 * time.Second),
	} {
		r := limit.Rule()
		var s State
		now := int64(t0)
		taken := Step(r, &s, now, Request{Kind: store.KindTakeUpTo, Cost: math.MaxInt64}).Granted
		const steps = 20_000
		gap := max(r.Period/(limit.N()+1)*3/7, r.Tick)
		for range steps {
			now += gap
			taken += Step(r, &s, now, Request{Kind: store.KindTakeUpTo, Cost: math.MaxInt64}).Granted
		}
		refilled := new(big.Rat).Mul(big.NewRat(r.Limit, r.Period), new(big.Rat).SetInt64(gap*steps))
		diff := refilled.Sub(refilled, new(big.Rat).SetInt64(taken-r.Burst))
		if f, _ := diff.Float64(); f < 0 || f >= 1+float64(gap*steps)*float64(r.Limit)/float64(r.Period)*1e-6 {
			t.Errorf("%s: %d taken in %dµs is %s tokens from the rate", limit, taken, gap*steps, diff.FloatString(6))
		}
	}
}

// TestT01_PermutedTimesMintNothing is trap T1: 10/s, burst 10, the requests of one
// second in random order of time.
func TestT01_PermutedTimesMintNothing(t *testing.T) {
	rng := newRand(t)
	for _, a := range everyAlgorithm() {
		limit := headgate.PerSecond(10).WithAlgorithm(a)
		var s State
		admitted := 0
		for _, i := range rng.Perm(1000) {
			if Step(limit.Rule(), &s, t0+int64(i)*1000, Request{Cost: 1}).Allowed {
				admitted++
			}
		}
		if admitted > 20 {
			t.Errorf("%s: %d in a second", limit, admitted)
		}
	}
}

func TestT02_ReturningATakeIsANoOp(t *testing.T) {
	for _, a := range store.Algorithms() {
		limit := headgate.PerMinute(10).WithAlgorithm(a)
		var s State
		Step(limit.Rule(), &s, t0, Request{Cost: 4})
		before := Step(limit.Rule(), &s, t0+5_000_000, Request{Kind: store.KindPeek, Cost: 1})
		res := Step(limit.Rule(), &s, t0+5_000_000, Request{Cost: 3})
		Step(limit.Rule(), &s, t0+5_000_000, Request{Kind: store.KindRefund, Cost: 3, Duration: res.ResetAfter})
		if after := Step(limit.Rule(), &s, t0+5_000_000, Request{Kind: store.KindPeek, Cost: 1}); after != before {
			t.Errorf("%s: before %s, after %s", limit, show(before), show(after))
		}
	}
}

// TestT02_AReturnTakesOutItsOwnTake, even if its caller is some milliseconds off, for
// example because the store has its own clock. Taking out a newer take instead would
// admit that one's tokens twice in a period.
func TestT02_AReturnTakesOutItsOwnTake(t *testing.T) {
	r := headgate.Per(2, 2*time.Second).WithAlgorithm(store.SlidingLog).Rule()
	for _, off := range []time.Duration{0, 1, time.Microsecond, 3 * time.Millisecond, 60 * time.Millisecond, -time.Microsecond, -60 * time.Millisecond} {
		var s State
		take := func(at int64) bool {
			return Step(r, &s, t0+at, Request{Kind: store.KindTake, Cost: 1}).Allowed
		}
		if !take(0) || !take(1_000_000) {
			t.Fatal("a fresh log refuses")
		}
		Step(r, &s, t0+1_500_000, Request{Kind: store.KindRefund, Cost: 1, Duration: 500*time.Millisecond + off})
		if !take(1_500_001) || take(2_000_001) || take(2_999_999) || !take(3_000_000) {
			t.Errorf("placed %v off: the take of 1 s does not count until 3 s", off)
		}
	}
}

// TestT02_AReturnTakesOutOfItsOwnWindow, even if its caller is some milliseconds late
// and the time is in the next one: of 600 taken at 0.5 s and 300 at 1.2 s, the 600 are
// returned, and the rest counts as long as it would without them.
func TestT02_AReturnTakesOutOfItsOwnWindow(t *testing.T) {
	per := headgate.PerSecond(1000)
	buckets := per.WithAlgorithm(store.SlidingBuckets)
	for _, limit := range []headgate.Limit{
		per.WithAlgorithm(store.SlidingWindow), buckets.WithBuckets(2, store.EdgeWeighted),
		buckets.WithBuckets(2, store.EdgeLenient), buckets.WithBuckets(2, store.EdgeStrict),
	} {
		r := limit.Rule()
		for _, off := range []time.Duration{0, 1, time.Microsecond, 2 * time.Microsecond, 3 * time.Millisecond, 60 * time.Millisecond} {
			var s, alone State
			first := Step(r, &s, t0+500_000, Request{Cost: 600})
			Step(r, &s, t0+1_200_000, Request{Cost: 300})
			Step(r, &alone, t0+1_200_000, Request{Cost: 300})
			left := first.ResetAfter - 800*time.Millisecond + off
			Step(r, &s, t0+1_300_000, Request{Kind: store.KindRefund, Cost: 600, Duration: left})
			for at := int64(t0 + 1_300_000); at < t0+3_500_000; at += 100_000 {
				got, want := Step(r, &s, at, Request{Kind: store.KindPeek, Cost: 1}), Step(r, &alone, at, Request{Kind: store.KindPeek, Cost: 1})
				if got != want {
					t.Errorf("%s, placed %v late: at %d µs %s, want %s", limit, off, at-t0, show(got), show(want))
					break
				}
			}
		}
	}
}

// TestT02_ALateReturnGivesBackOnlyWhatStillCounts: what time has already returned is
// not returned again, whatever else was taken in between (trap T2).
func TestT02_ALateReturnGivesBackOnlyWhatStillCounts(t *testing.T) {
	limit := headgate.PerMinute(60).WithBurst(10) // one a second
	var s State
	first := Step(limit.Rule(), &s, t0, Request{Cost: 4})
	Step(limit.Rule(), &s, t0+3_000_000, Request{Cost: 6}) // 1 + 6 are used
	left := first.ResetAfter - 3*time.Second
	Step(limit.Rule(), &s, t0+3_000_000, Request{Kind: store.KindRefund, Cost: 4, Duration: left})
	if got := Step(limit.Rule(), &s, t0+3_000_000, Request{Kind: store.KindPeek, Cost: 1}); got.Remaining != 4 {
		t.Errorf("of 4 taken 3s ago 1 still counts; after its return: %s", show(got))
	}
}

func TestT03_T13_ALimitOfZeroRefusesAll(t *testing.T) {
	for _, a := range everyAlgorithm() {
		limit := headgate.PerSecond(0).WithAlgorithm(a)
		var s State
		for _, k := range []store.Kind{store.KindTake, store.KindTakeUpTo, store.KindReserve, store.KindPeek, store.KindCharge} {
			for cost := range int64(2) { // also refuses a dry run
				got := Step(limit.Rule(), &s, t0, Request{Kind: k, Cost: cost, Duration: math.MaxInt64})
				if got.Allowed || got.Reason != store.ReasonTooLarge || got.RetryAfter != store.Never || got.Wrote {
					t.Errorf("%s %d of %s: %s", k, cost, limit, show(got))
				}
			}
		}
	}
}

func TestT17_HugeCountsTimesLongPeriods(t *testing.T) {
	limit := headgate.Per(store.MaxLimit, 365*24*time.Hour).WithAlgorithm(store.SlidingWindow)
	var s State
	start := year * 50
	Step(limit.Rule(), &s, start, Request{Cost: store.MaxLimit})
	if got := Step(limit.Rule(), &s, start+year+year/2, Request{Cost: store.MaxLimit/2 + 1}); got.Allowed || got.Remaining != store.MaxLimit/2 {
		t.Errorf("half of the previous window still counts: %s", show(got))
	}
}

func TestUnlimited(t *testing.T) {
	limit := headgate.Unlimited()
	for k := store.KindTake; k <= store.KindDraw; k++ {
		var s State
		got := Step(limit.Rule(), &s, t0, Request{Kind: k, Cost: math.MaxInt64, Duration: time.Hour})
		if !got.Allowed || got.Reason != store.ReasonNoLimit || got.Wrote || !isZero(&s) {
			t.Errorf("%s: %s", k, show(got))
		}
		if took := k == store.KindTake || k == store.KindTakeUpTo || k == store.KindCharge || k == store.KindReserve || k == store.KindDraw; (got.Granted > 0) != took {
			t.Errorf("%s: granted %d", k, got.Granted)
		}
	}
}

// TestTakeAgrees: Take and its slower path give the same answers as the generic step,
// even after a change of the limit and with a clock that goes back.
func TestTakeAgrees(t *testing.T) {
	rng := newRand(t)
	outcomes := make(map[store.Reason]int)
	for range 4000 {
		a := pick(rng, store.TokenBucket, store.LeakyBucket)
		limit := randomLimit(rng, a)
		var s State
		now := int64(t0)
		for range 10 {
			if rng.IntN(8) == 0 {
				limit = randomLimit(rng, a)
			}
			now += rng.Int64N(limit.Rule().Period)
			if rng.IntN(8) == 0 {
				now -= rng.Int64N(limit.Rule().Period)
			}
			n := 1 + near(rng, 0, limit.Burst()+2)
			before := Bucket{s.V[0], s.V[1], s.V[2]}
			want := take(limit.Rule(), &s, now, Request{Cost: n})
			outcomes[want.Reason]++
			for name, f := range map[string]func(*store.Rule, Bucket, int64, int64, *store.Decision) (Bucket, int64, bool){
				"Take": Take, "takeAnyBucket": takeAnyBucket,
			} {
				d := store.Decision{Delay: 7, Reason: store.ReasonCached, RetryAfter: 9, Granted: 3} // like a caller's last one
				after, fresh, wrote := f(limit.Rule(), before, now, n, &d)
				if d != want.Decision || fresh != want.FreshAt || wrote != want.Wrote || wrote && after != (Bucket{s.V[0], s.V[1], s.V[2]}) {
					t.Fatalf("%s, %d of %+v: %s says %+v, the step %s", limit, n, before, name, d, show(want))
				}
			}
		}
	}
	if outcomes[store.ReasonOK] < 100 || outcomes[store.ReasonLimited] < 100 || outcomes[store.ReasonTooLarge] < 100 {
		t.Errorf("one-sided: %v", outcomes)
	}
}

// TestMemoryOfAlgorithms: what 500 a day take for one user, as a log and as buckets.
func TestMemoryOfAlgorithms(t *testing.T) {
	words := func(limit headgate.Limit) int {
		var s State
		for i := range int64(500) {
			Step(limit.Rule(), &s, t0+i*170_000_000, Request{Cost: 1})
		}
		return len(s.Words)
	}
	if n := words(headgate.PerDay(500).WithAlgorithm(store.SlidingLog)); n != 230 {
		t.Errorf("a log of 500 has %d words", n)
	}
	if n := words(headgate.PerDay(500).WithAlgorithm(store.SlidingBuckets)); n > 8 {
		t.Errorf("60 buckets have %d words", n)
	}
}

// TestAtTheBeginningOfTime: an unused key is fresh at every time, including the first.
func TestAtTheBeginningOfTime(t *testing.T) {
	for _, a := range everyAlgorithm() {
		limit := headgate.PerMinute(10).WithAlgorithm(a)
		if got := Step(limit.Rule(), &State{}, 0, Request{Kind: store.KindPeek, Cost: 1}); got.FreshAt != 0 || !got.Allowed {
			t.Errorf("%s: %s", limit, show(got))
		}
	}
}

// TestLogsForgetWhatHasEnded: at least half of a log's words are entries that count,
// whether many end at once or one after another.
func TestLogsForgetWhatHasEnded(t *testing.T) {
	for _, limit := range []headgate.Limit{headgate.PerSecond(100).WithAlgorithm(store.SlidingLog), headgate.Concurrent(100).WithLease(time.Second)} {
		var s State
		for round := range int64(10) {
			for i := range int64(120) {
				at := t0 + round*1_500_000 + i // 80 at once
				if i >= 80 {
					at += 750_000 + (i-80)*10_000 // one every 10 ms; at i = 105 the 80 end
				}
				got := Step(limit.Rule(), &s, at, Request{Cost: 1})
				if live := limit.N() - got.Remaining; got.Remaining > 0 && int64(len(s.Words)) > 2*live+entryHead {
					t.Fatalf("%s: round %d, request %d: %d words for %d that count; %s", limit, round, i, len(s.Words), live, show(got))
				}
			}
		}
	}
}

// TestAStateIsUsedAgain: a fully refunded key needs no new memory.
func TestAStateIsUsedAgain(t *testing.T) {
	for _, a := range everyAlgorithm() {
		r := headgate.PerMinute(10).WithAlgorithm(a).Rule()
		var s State
		Step(r, &s, t0, Request{Cost: 1})
		if n := testing.AllocsPerRun(100, func() {
			Step(r, &s, t0, Request{Kind: store.KindRefund, Cost: 1})
			Step(r, &s, t0, Request{Cost: 1})
		}); n != 0 {
			t.Errorf("%s: %v allocations for a take and its return", a, n)
		}
	}
}
