package algorithm_test

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// sharer asks for one token at a time, at random times.
type sharer struct {
	demand float64 // tokens a second
	weight int64
	from   time.Duration // the first of them

	state        algorithm.State
	next         time.Duration
	offered, got int64
}

type byTime []*sharer

func (b byTime) Len() int           { return len(b) }
func (b byTime) Less(i, j int) bool { return b[i].next < b[j].next }
func (b byTime) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b *byTime) Push(any)          {}
func (b *byTime) Pop() any          { return nil }

// sharing is a bucket that many share, and its time.
type sharing struct {
	*testing.T

	rng    *rand.Rand
	limit  *store.Rule
	fair   *store.Fair
	bucket algorithm.State
	all    byTime
	now    time.Duration
	taken  int64
}

func newSharing(t *testing.T, limit headgate.Limit, horizon time.Duration, all ...*sharer) *sharing {
	t.Helper()
	s := &sharing{T: t, rng: rand.New(rand.NewPCG(1, 2)), limit: limit.Rule(), all: all}
	var err error
	if s.fair, err = store.NewFair(s.limit, horizon); err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		one.next = one.from
		s.later(one)
	}
	heap.Init(&s.all)
	return s
}

func (s *sharing) later(one *sharer) {
	one.next += time.Duration(s.rng.ExpFloat64() / one.demand * float64(time.Second))
}

// run lets everybody ask for some time, and counts that only.
func (s *sharing) run(lasting time.Duration) *sharing {
	end := s.now + lasting
	s.taken = 0
	for _, one := range s.all {
		one.offered, one.got = 0, 0
	}
	for s.all[0].next < end {
		one := s.all[0]
		res, _ := algorithm.StepShared(s.limit, &s.bucket, &one.state, fairStart+int64(one.next/time.Microsecond), algorithm.Request{Cost: 1}, &store.Share{Fair: s.fair, Weight: one.weight})
		one.offered++
		one.got += res.Granted
		s.taken += res.Granted
		s.later(one)
		heap.Fix(&s.all, 0)
	}
	s.now = end
	return s
}

// maxMin returns the shares of the max-min oracle: what everybody would have got, by weight,
// if capacity was divided knowing all that was asked for.
func (s *sharing) maxMin(capacity float64) []float64 {
	out, weights := make([]float64, len(s.all)), 0.0
	for i, one := range s.all {
		out[i], weights = -1, weights+float64(one.weight)
	}
	for changed := true; changed; {
		changed = false
		level := capacity / weights
		for i, one := range s.all {
			if out[i] < 0 && float64(one.offered) <= level*float64(one.weight) {
				out[i], changed = float64(one.offered), true
				capacity, weights = capacity-out[i], weights-float64(one.weight)
			}
		}
	}
	for i, one := range s.all {
		if out[i] < 0 {
			out[i] = capacity / weights * float64(one.weight)
		}
	}
	return out
}

// judge compares what was taken in the last run with the oracle.
func (s *sharing) judge(lasting time.Duration, most float64) {
	s.Helper()
	capacity := float64(store.InHorizon(s.limit, lasting))
	off, worst := 0.0, 0.0
	for i, want := range s.maxMin(capacity) {
		d := math.Abs(float64(s.all[i].got) - want)
		off += d
		worst = max(worst, d/max(want, 1))
	}
	off /= capacity
	used := float64(s.taken) / capacity
	s.Logf("%.3f %% away from the oracle, the worst %.1f %%, %.2f %% used", 100*off, 100*worst, 100*used)
	if off > most || used < 0.99 {
		s.Errorf("want at most %g %%, and 99 %% used", 100*most)
	}
}

const horizon = 10 * time.Second

const fairStart = int64(1_767_225_600_000_000)

// TestFairOneHeavy: ten times the rate from one of ten takes nothing from the others.
func TestFairOneHeavy(t *testing.T) {
	all := []*sharer{{demand: 10_000, weight: 1}}
	for range 9 {
		all = append(all, &sharer{demand: 50, weight: 1})
	}
	newSharing(t, headgate.PerSecond(1000), horizon, all...).run(2*horizon).run(10*horizon).judge(10*horizon, 0.0005)
}

// TestFairMixed: a hundred with weights of 1, 2 and 5, who want from 0.6 to 100 a second.
func TestFairMixed(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var all []*sharer
	for i := range 100 {
		all = append(all, &sharer{demand: math.Exp(rng.Float64()*5) / 1.5, weight: []int64{1, 2, 5}[i%3]})
	}
	newSharing(t, headgate.PerSecond(1000), horizon, all...).run(2*horizon).run(10*horizon).judge(10*horizon, 0.0045)
}

// TestFairZipf: a thousand want five times what there is; a share is 11 tokens a horizon.
func TestFairZipf(t *testing.T) {
	sum := 0.0
	for i := range 1000 {
		sum += 1 / float64(i+1)
	}
	var all []*sharer
	for i := range 1000 {
		all = append(all, &sharer{demand: 5000 / sum / float64(i+1), weight: 1})
	}
	newSharing(t, headgate.PerSecond(1000), horizon, all...).run(2*horizon).run(25*horizon).judge(25*horizon, 0.01)
}

// TestFairSmall: what a level of only 20 or 100 tokens can say.
func TestFairSmall(t *testing.T) {
	for _, test := range []struct {
		limit headgate.Limit
		most  float64
	}{
		{headgate.PerSecond(100), 0.01}, {headgate.PerSecond(20), 0.06}, {headgate.PerSecond(1000).WithBurst(100), 0.04},
	} {
		all := []*sharer{{demand: 2000, weight: 1}, {demand: 500, weight: 2}, {demand: 500, weight: 1}, {demand: 1, weight: 1}}
		newSharing(t, test.limit, horizon, all...).run(2*horizon).run(10*horizon).judge(10*horizon, test.most)
	}
}

// TestFairNewcomer: who comes late has half at once, and one horizon later nothing of what
// idleness gave is left. The other one does not pay for what it used while it was alone.
func TestFairNewcomer(t *testing.T) {
	heavy, late := &sharer{demand: 10_000, weight: 1}, &sharer{demand: 2000, weight: 1, from: 2 * horizon}
	s := newSharing(t, headgate.PerSecond(1000), horizon, heavy, late).run(2 * horizon)
	if heavy.got < 20_000 {
		t.Errorf("alone it took %d of 21,000", heavy.got)
	}
	if s.run(horizon); late.got < 5000 || late.got > 6000 {
		t.Errorf("in its first horizon the newcomer took %d of 10,000, want half and the rest of the burst", late.got)
	}
	if s.run(horizon); late.got < 4750 || late.got > 5250 {
		t.Errorf("in its second horizon the newcomer took %d of 10,000, want half", late.got)
	}
}

// TestFairHammering: asking more gains nothing, as demand is not measured.
func TestFairHammering(t *testing.T) {
	hammers, asks := &sharer{demand: 20_000, weight: 1}, &sharer{demand: 700, weight: 1}
	s := newSharing(t, headgate.PerSecond(1000), horizon, hammers, asks)
	if s.run(horizon).run(2 * horizon); hammers.got > 10_100 || asks.got < 9900 {
		t.Errorf("who asks 20,000 a second took %d, who asks 700 took %d of 20,000", hammers.got, asks.got)
	}
}

// TestFairLone: who is alone has half of the burst at once, and then the whole rate.
func TestFairLone(t *testing.T) {
	lone := &sharer{demand: 5000, weight: 1}
	s := newSharing(t, headgate.PerSecond(1000), horizon, lone)
	if s.run(200 * time.Millisecond); lone.got < 500 {
		t.Errorf("at first it took %d of 1,000", lone.got)
	}
	s.run(800 * time.Millisecond)
	if s.run(10 * time.Second); lone.got < 9990 || lone.got > 10_010 {
		t.Errorf("then it took %d in ten seconds, want 10,000", lone.got)
	}
}

// TestFairBound: whatever is asked, the bucket gives no more than its burst and what it
// refills; and a refusal says a time at which the request passes if nobody else asks.
func TestFairBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		limit := headgate.PerSecond(20 + rng.Int64N(2000)).WithBurst(20 + rng.Int64N(3000)).Rule()
		fair, err := store.NewFair(limit, time.Second+time.Duration(rng.Int64N(int64(time.Minute))))
		if err != nil {
			t.Fatal(err)
		}
		var bucket algorithm.State
		members := make([]algorithm.State, 5)
		now, took := fairStart, int64(0)
		for range 500 {
			now += rng.Int64N(20_000)
			i := rng.IntN(len(members))
			share := &store.Share{Fair: fair, Weight: 1 + rng.Int64N(9)}
			req := algorithm.Request{Cost: rng.Int64N(30)}
			res, paid := algorithm.StepShared(limit, &bucket, &members[i], now, req, share)
			took += res.Granted
			if res.Wrote != paid.Wrote {
				t.Fatalf("one of two states was written: %v, %v", res, paid)
			}
			if res.Reason != store.ReasonShare {
				continue
			}
			later := now + int64(res.RetryAfter/time.Microsecond)
			alone, owner := bucket, members[i]
			if again, _ := algorithm.StepShared(limit, &alone, &owner, later, req, share); !again.Allowed {
				t.Fatalf("refused at RetryAfter: %v, then %v", res.Decision, again.Decision)
			}
		}
		if most := limit.Burst + limit.Limit*(now-fairStart)/1_000_000 + 1; took > most {
			t.Errorf("%d were taken, more than %d", took, most)
		}
	}
}

// TestFairReturns: a refund gives time back, a charge takes it, and who is far over its share
// still passes within half a horizon.
func TestFairReturns(t *testing.T) {
	limit := headgate.PerSecond(1000).Rule()
	fair, err := store.NewFair(limit, horizon)
	if err != nil {
		t.Fatal(err)
	}
	share := &store.Share{Fair: fair, Weight: 1}
	var bucket, owner algorithm.State
	step := func(at int64, kind store.Kind, cost int64) algorithm.Result {
		res, _ := algorithm.StepShared(limit, &bucket, &owner, fairStart+at, algorithm.Request{Kind: kind, Cost: cost}, share)
		return res
	}
	first := step(0, store.KindTake, 900)
	if step(0, store.KindRefund, 900); owner.V != [4]int64{} || bucket.V != [4]int64{} {
		t.Errorf("after a refund of all there is %v and %v", bucket, owner)
	}
	if again := step(0, store.KindTake, 900); again.Remaining != first.Remaining {
		t.Errorf("after a refund %d remain, before %d", again.Remaining, first.Remaining)
	}
	step(0, store.KindCharge, 100_000)
	over := step(0, store.KindTake, 1)
	if over.Reason != store.ReasonShare {
		t.Errorf("far over the limit: %v", over.Decision)
	}
}
