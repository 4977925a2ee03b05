package algorithm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// nextMember returns the member of the next of several steps; see vectorStep.Times.
func nextMember(member uint64) uint64 {
	return max((member+0x9e3779b97f4a7)%certain, 1)
}

// distinctRecorder records a vector of a limit of distinct values. Its answers are
// checked with an oracle in distinct_test.go.
type distinctRecorder struct {
	*testing.T
	vector vector
	state  State
	limit  headgate.Limit
	fresh  bool
}

func (r *distinctRecorder) change(limit headgate.Limit) { r.limit, r.fresh = limit, true }

func (r *distinctRecorder) step(at int64, req Request, times int) Result {
	v := vectorStep{
		AtUS: at, Kind: req.Kind.String(), Cost: req.Cost, DurationUS: int64(req.Duration / time.Microsecond),
		Member: req.Member, CountsUntilUS: req.CountsUntil, Window: windowOf(&r.limit, at),
	}
	if r.fresh {
		rule := ruleOf(&r.limit)
		v.Limit, v.Rule, r.fresh = specOf(&r.limit), &rule, false
	}
	res := Step(r.limit.Rule(), &r.state, at, req)
	if times > 1 {
		v.Times = times
	}
	for range times - 1 {
		req.Member = nextMember(req.Member)
		res = Step(r.limit.Rule(), &r.state, at, req)
	}
	v.fill(r.limit.Rule(), res, &r.state)
	r.vector.Steps = append(r.vector.Steps, v)
	return res
}

// distinctVectors returns random histories, one of thousands of values, and one in which
// the limit changes.
func distinctVectors(t *testing.T) (all []vector) {
	t.Helper()
	rng := rand.New(rand.NewPCG(20260101, uint64(store.Distinct)))
	for i := range 24 {
		r := &distinctRecorder{T: t, vector: vector{Name: fmt.Sprintf("random history %d", i+1)}}
		r.change(randomDistinct(rng))
		now, counts := int64(t0), int64(0)
		for range 40 {
			if rng.IntN(15) == 0 {
				r.change(randomDistinct(rng))
			}
			now = min(now+pick(rng, 0, 0, 1, rng.Int64N(r.limit.Rule().Period/4+1), -rng.Int64N(1_000_000)), maxTime)
			res := r.step(now, randomDistinctRequest(rng, 1+rng.Uint64N(14), counts), 1)
			if res.CountsUntil > 0 {
				counts = res.CountsUntil
			}
		}
		all = append(all, r.vector)
	}
	for _, n := range []int64{300, 4096, 6000} {
		all = append(all, manyValues(t, n, n))
	}
	all = append(all, manyValues(t, store.MaxDistinctExact+1, 6000))
	return all
}

func randomDistinct(rng *rand.Rand) headgate.Limit {
	limit := randomWindow(rng).WithAlgorithm(store.Distinct)
	if limit.Rule().Calendar != store.NoCalendar && rng.IntN(2) == 0 {
		return limit.WithZone(zone(pick(rng, "Asia/Kolkata", "America/New_York", "UTC")))
	}
	return limit
}

func randomDistinctRequest(rng *rand.Rand, value uint64, counts int64) Request {
	req := Request{
		Kind: pick(rng, store.KindTake, store.KindTake, store.KindTake, store.KindTake, store.KindTakeUpTo, store.KindReserve, store.KindCharge,
			store.KindPeek, store.KindRefund, store.KindRefund, store.KindGrant, store.KindReset, store.KindRelease, store.KindRenew),
		Cost: pick[int64](rng, 0, 1, 1, 1, 1, 7, 7, store.MaxLimit, store.MaxLimit+1), Member: spread(value),
	}
	switch {
	case req.Kind == store.KindPeek && value%3 == 0:
		req.Member = 0
	case req.Kind == store.KindRefund && value%2 == 0:
		req.CountsUntil = counts
	case req.Kind == store.KindRefund || req.Kind == store.KindReserve:
		req.Duration = time.Duration(rng.Int64N(int64(time.Hour))).Truncate(time.Microsecond)
	case req.Kind == store.KindGrant:
		req.Cost, req.Duration = 1+rng.Int64N(3), time.Minute
	}
	return req
}

// manyValues fills a window, through the list and what follows it, of a limit of n with up
// to the given number of values.
func manyValues(t *testing.T, n, values int64) vector {
	t.Helper()
	r := &distinctRecorder{T: t, vector: vector{Name: fmt.Sprintf("%d values of %d", values, n)}}
	r.change(headgate.PerDay(n).WithAlgorithm(store.Distinct))
	take := Request{Cost: 1, Member: 1}
	now, left := int64(t0), int(values)
	for _, times := range []int{1, 145, 1, 153, 1, 3000, 794, 1, 1, 1, 1, 400, 1500} {
		if left <= 0 {
			break
		}
		times = min(times, left)
		r.step(now, take, times)
		for range times - 1 {
			take.Member = nextMember(take.Member)
		}
		left -= times
		r.step(now, take, 1) // known
		known := take
		take.Member = nextMember(take.Member)
		r.step(now, Request{Kind: store.KindPeek, Cost: 1, Member: take.Member}, 1)
		r.step(now+1, Request{Kind: store.KindRefund, Cost: 1, Member: known.Member}, 1)
		r.step(now+2, known, 1)
		r.step(now+2, Request{Kind: store.KindGrant, Cost: 1, Duration: time.Microsecond}, 1)
		now += 1_000_000
	}
	r.step(now, take, 600)
	r.step(now, Request{Kind: store.KindCharge, Cost: 1, Member: 12345}, 700)
	r.step(now, Request{Kind: store.KindPeek, Cost: 1}, 1)
	r.change(headgate.PerHour(n).WithAlgorithm(store.Distinct)) // the window goes on
	r.step(now, Request{Cost: 1, Member: 1}, 1)
	r.step(now, Request{Kind: store.KindCharge, Cost: 1, Member: 54321}, 1)
	r.step(now+3_600_000_000, Request{Cost: 1, Member: 1}, 3)
	r.step(now+3_600_000_000, Request{Kind: store.KindReset}, 1)
	return r.vector
}
