package algorithm

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// randomSteps returns a limit whose steps need not divide its period.
func randomSteps(rng *rand.Rand) headgate.Limit {
	for {
		period := 1 + near(rng, 1000, 60_000_000)
		l := headgate.Per(1+rng.Int64N(40), micros(period)).WithRefillEvery(micros(near(rng, max(period/50, 1), 2*period)))
		if rng.IntN(2) == 0 {
			l = l.WithBurst(1 + rng.Int64N(90))
		}
		if l.Rule().Valid() {
			return l
		}
	}
}

// TestStepsFillAtTheEdges compares a bucket with one that is written down as tokens and
// filled at each edge, in exact fractions: what passes, what is left, and that RetryAfter
// and ResetAfter end at the first edge that has brought enough.
func TestStepsFillAtTheEdges(t *testing.T) {
	rng := newRand(t)
	for range 50 {
		limit := randomSteps(rng)
		r, every := limit.Rule(), limit.Rule().RefillEvery
		burst, gain := big.NewRat(r.Burst, 1), big.NewRat(r.Limit*every, r.Period)
		now := int64(t0) + rng.Int64N(every)
		tokens := new(big.Rat).Set(burst)
		fill := func(x *big.Rat) {
			if x.Add(x, gain).Cmp(burst) > 0 {
				x.Set(burst)
			}
		}
		// until returns when there are n tokens.
		until := func(n int64) int64 {
			x, at := new(big.Rat).Set(tokens), now
			for x.Cmp(big.NewRat(n, 1)) < 0 {
				at = at/every*every + every
				fill(x)
			}
			return at
		}
		var s State
		for range 60 {
			next := now + near(rng, 0, 3*every)
			for edge := now/every*every + every; edge <= next; edge += every {
				fill(tokens)
			}
			now = next
			n := 1 + near(rng, 0, r.Burst-1)
			retry := until(n) - now
			if retry == 0 {
				tokens.Sub(tokens, big.NewRat(n, 1))
			}
			got := Step(r, &s, now, Request{Cost: n})
			if got.Allowed != (retry == 0) || got.RetryAfter != micros(retry) || got.ResetAfter != micros(until(r.Burst)-now) ||
				got.Remaining != floor(tokens).Int64() || got.FreshAt != until(r.Burst) {
				t.Fatalf("%s, %d at %d: %s; there are %s tokens, enough in %dµs, all at %d", limit, n, now, show(got), tokens, retry, until(r.Burst))
			}
		}
	}
}

// TestAStepOfOnePeriodIsAFixedWindow: the same answers to the same requests, as long as
// nobody is in debt and the clock does not go back.
func TestAStepOfOnePeriodIsAFixedWindow(t *testing.T) {
	rng := newRand(t)
	for range 200 {
		fixed := headgate.Per(1+rng.Int64N(20), micros(1000+near(rng, 1, 60_000_000))).WithAlgorithm(store.FixedWindow)
		steps := fixed.WithAlgorithm(store.TokenBucket).WithRefillEvery(fixed.Period())
		now := int64(t0) + rng.Int64N(fixed.Rule().Period)
		var a, b State
		var last Result
		for range 100 {
			now += near(rng, 0, pick(rng, fixed.Rule().Period/fixed.N(), 2*fixed.Rule().Period))
			req := Request{
				Kind: pick(rng, store.KindTake, store.KindTake, store.KindTake, store.KindTakeUpTo, store.KindPeek, store.KindRefund, store.KindReset),
				Cost: near(rng, 0, fixed.N()+1),
			}
			if req.Kind == store.KindRefund {
				req.Cost, req.CountsUntil = last.Granted, last.CountsUntil
				last = Result{}
			}
			want, got := Step(fixed.Rule(), &a, now, req), Step(steps.Rule(), &b, now, req)
			if got.Decision != want.Decision {
				t.Fatalf("%s %d at %d of %s: %s, the window %s", req.Kind, req.Cost, now, steps, show(got), show(want))
			}
			if got.CountsUntil != 0 {
				last = got
			}
		}
	}
}

// TestStepsBound: in any time the bucket admits at most its burst and the steps in it,
// even if the clock runs backwards.
func TestStepsBound(t *testing.T) {
	rng := newRand(t)
	for range 300 {
		limit := randomSteps(rng)
		r := limit.Rule()
		passed := admissions(rng, limit, 150, pick(rng, 0, r.Period))
		for i := range passed {
			total := int64(0)
			for j := i; j < len(passed); j++ {
				total += passed[j].count
				steps := passed[j].at/r.RefillEvery - passed[i].at/r.RefillEvery
				if total*r.Period > r.Burst*r.Period+steps*r.RefillEvery*r.Limit {
					t.Fatalf("%s: %d with %d steps", limit, total, steps)
				}
			}
		}
	}
}

// TestStepsChangeOver: a bucket that begins or ceases to refill in steps keeps its use,
// and gains at most the first step early.
func TestStepsChangeOver(t *testing.T) {
	even := headgate.PerMinute(60)
	steps := even.WithRefillEvery(10 * time.Second)
	var s State
	at := func(sec int64, l headgate.Limit, want int64) {
		t.Helper()
		if got := Step(l.Rule(), &s, t0+sec*1_000_000, Request{Kind: store.KindPeek}); got.Remaining != want {
			t.Errorf("%d s, %s: %s, want %d left", sec, l, show(got), want)
		}
	}
	Step(even.Rule(), &s, t0, Request{Cost: 60})
	at(9, even, 9)
	at(9, steps, 0)
	at(10, steps, 10)
	Step(steps.Rule(), &s, t0+19_000_000, Request{Cost: 1}) // 9 left
	at(19, even, 9)
	at(20, even, 10)
	at(20, steps, 19)
}

// TestStepsSurviveAClockSetBack: no step counts twice, and the next one is the next in
// the time that the state has seen.
func TestStepsSurviveAClockSetBack(t *testing.T) {
	r := headgate.PerMinute(6).WithRefillEvery(10 * time.Second).Rule()
	var s State
	take := func(at, n int64) Result { return Step(r, &s, t0+at*1_000_000, Request{Cost: n}) }
	take(5, 6)
	take(15, 1) // the step at 10 s
	for _, at := range []int64{3, 9, 12, 0, 19} {
		if got := take(at, 1); got.Allowed || got.RetryAfter != micros((20-at)*1_000_000) {
			t.Errorf("at %d s: %s", at, show(got))
		}
	}
	if got := take(20, 1); !got.Allowed || got.Remaining != 0 {
		t.Errorf("at 20 s: %s", show(got))
	}
}

// TestStepsAllocateNothing: deciding in steps is as free of garbage as deciding without.
func TestStepsAllocateNothing(t *testing.T) {
	r := headgate.PerSecond(1000).WithRefillEvery(100 * time.Millisecond).Rule()
	var s State
	now := int64(t0)
	if n := testing.AllocsPerRun(100, func() {
		now += 999
		Step(r, &s, now, Request{Cost: 1})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
