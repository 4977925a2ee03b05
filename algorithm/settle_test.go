package algorithm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// settle makes what counts count as taken now.
func (o *oracle) settle(r *store.Rule, begin, now int64) {
	if o.until > begin {
		o.until -= begin - now
	}
	switch r.Algorithm {
	case store.TokenBucket, store.LeakyBucket:
		o.last = now
		return
	case store.Distinct: // has tests of its own in distinct_test.go
		return
	case store.FixedWindow, store.SlidingLog, store.SlidingWindow, store.SlidingBuckets, store.Concurrency:
	}
	used, credit, until := r.Limit-o.free(r, now), o.credit, o.until
	*o = *newOracle()
	o.credit, o.until = credit, until
	o.add(r, now, used)
}

// TestSettleAgreesWithTheOracle sets the clock ahead and right again during random
// histories.
func TestSettleAgreesWithTheOracle(t *testing.T) {
	rng := newRand(t)
	moved := map[store.Algorithm]int{}
	for a := range store.Distinct { // which has tests of its own in distinct_test.go
		for range *runsFlag {
			h := &history{T: t, rng: rng, limit: randomLimit(rng, a), now: int64(t0) + near(rng, 0, year), oracle: newOracle()}
			fmt.Fprintf(&h.trace, "%s %+v\n", h.limit, *h.limit.Rule())
			for range 6 {
				ahead := near(rng, 1, 10*year)
				h.now += ahead
				h.run(1 + rng.IntN(12))
				h.now -= ahead
				r := h.limit.Rule()
				begin, wait := begins(r, &h.state)
				was := clone(&h.state)
				if got, want := Settle(r, &h.state, h.now), begin-h.now > max(wait, 60_000_000); got != want {
					h.fatalf("moved: %v, want %v", got, want)
				} else if got {
					moved[a]++
					h.oracle.settle(r, begin, h.now)
				} else if !same(&was, &h.state) {
					h.fatalf("a state that stays was changed")
				}
				if Settle(r, &h.state, h.now) {
					h.fatalf("moved twice")
				}
				h.leases, h.taken = nil, nil // the names are not known any more
				h.run(1 + rng.IntN(12))
			}
		}
	}
	t.Log("moved: ", moved)
	if len(moved) < int(store.Distinct) {
		t.Errorf("not every algorithm was tested: %v", moved)
	}
}

// settleLimits returns limits of every kind.
func settleLimits() []headgate.Limit {
	limits := []headgate.Limit{
		headgate.PerMinute(5).WithAlgorithm(store.FixedWindow).WithAnchor(store.AnchorFirstRequest), headgate.PerSecond(10),
		headgate.PerMinute(5).WithBurst(40).WithRefillEvery(15 * time.Second), headgate.PerMinute(5).WithAlgorithm(store.LeakyBucket).WithMaxWait(20 * time.Second),
		headgate.PerCalendar(5, store.Day, zone("Europe/Berlin")), headgate.PerCalendar(5, store.Month, time.UTC),
		headgate.PerCalendar(5, store.Day, nil).WithZone(zone("Asia/Kolkata")), headgate.PerCalendar(5, store.Hour, nil).WithAlgorithm(store.Distinct),
		headgate.PerMinute(5).WithAlgorithm(store.SlidingWindow).WithRefusalsCounted(), headgate.PerMinute(5).WithAlgorithm(store.SlidingLog).WithRefusalsCounted(),
	}
	for a := range store.Distinct + 1 {
		limits = append(limits, headgate.PerMinute(5).WithAlgorithm(a), headgate.PerDay(5).WithAlgorithm(a))
	}
	return limits
}

// TestSettleLeavesStatesThatTheClockExplains: whatever was charged, booked, drawn or
// granted, and also if the clock goes back by a minute or by the longest wait.
func TestSettleLeavesStatesThatTheClockExplains(t *testing.T) {
	rng := newRand(t)
	for _, limit := range settleLimits() {
		for range 20 {
			r, now := limit.Rule(), int64(t0)+rng.Int64N(year)
			var s State
			for i := range 40 {
				req := randomTake(rng, r, uint64(i))
				_, wait := begins(r, &s)
				back := rng.Int64N(max(wait, 60_000_000) + 1)
				was := clone(&s)
				if Settle(r, &s, now-back) {
					t.Fatalf("%s: moved at %d by %d: %s", limit, now, back, showState(&was))
				}
				Step(r, &s, now, req)
				now += rng.Int64N(r.Period)
			}
		}
	}
}

// randomTake returns a request that takes, some of them far into debt.
func randomTake(rng *rand.Rand, r *store.Rule, member uint64) Request {
	req := Request{Kind: store.KindTake, Cost: 1 + rng.Int64N(4), Member: 1 + member}
	switch rng.IntN(5) {
	case 0:
		req.Kind, req.Cost = store.KindCharge, near(rng, 1, maxCount)
	case 1:
		req.Kind, req.Duration = store.KindReserve, micros(near(rng, 1, 1000*year))
	case 2:
		req.Kind, req.Duration = store.KindGrant, micros(near(rng, 1, 1000*year))
	case 3:
		req.Kind, req.Duration = store.KindTakeUpTo, 0
	}
	return req
}

// TestSettleGivesNothing: what was taken with a wrong clock is there as if it had been
// taken with the right one, or for longer, and yet at most for two longest waits.
func TestSettleGivesNothing(t *testing.T) {
	rng := newRand(t)
	for _, limit := range settleLimits() {
		for range 100 {
			r, ahead := limit.Rule(), 3*year+near(rng, 1, 20*year)
			at := int64(t0) + rng.Int64N(year)
			now := at + near(rng, 0, 2*r.Period)
			var wrong, right State
			for i := range 1 + rng.IntN(5) {
				req := Request{Kind: store.KindTake, Cost: 1, Member: uint64(i) + 1}
				Step(r, &wrong, at+ahead, req)
				Step(r, &right, at, req)
			}
			if !Settle(r, &wrong, now) {
				t.Fatalf("%s: not moved from %d to %d: %s", limit, at+ahead, now, showState(&wrong))
			}
			_, wait := begins(r, &wrong)
			for range 10 {
				u := now + near(rng, 0, 2*wait)
				if got, most := available(r, &wrong, u), available(r, &right, u); got > most {
					t.Fatalf("%s: taken at %d, moved at %d: %d are available at %d, not %d", limit, at, now, got, u, most)
				}
			}
			if got := available(r, &wrong, now+2*wait+1); got < available(r, new(State), now) {
				t.Fatalf("%s: %d are available after two waits of %v", limit, got, micros(wait))
			}
			if fresh := freshAt(r, &wrong, now); fresh > now+2*wait+WindowKept(wrong.V[2]) {
				t.Fatalf("%s: fresh in %v", limit, micros(fresh-now))
			}
		}
	}
}

// TestSettleMovesCredit: credit that was granted by the wrong clock lasts as long as was
// said, and that from before stays.
func TestSettleMovesCredit(t *testing.T) {
	for _, limit := range settleLimits() {
		r, ahead := limit.Rule(), 10*year
		for _, at := range []int64{0, ahead} {
			var s State
			Step(r, &s, int64(t0)+at, Request{Kind: store.KindGrant, Cost: 7, Duration: time.Hour})
			Step(r, &s, int64(t0)+ahead, Request{Kind: store.KindCharge, Cost: 2, Member: 1})
			credit, until := s.Credit, s.Until
			begin, _ := begins(r, &s)
			if !Settle(r, &s, int64(t0)) || s.Credit != credit {
				t.Fatalf("%s: not moved, or without the credit: %s", limit, showState(&s))
			}
			want := until
			if at > 0 {
				want -= begin - int64(t0)
			}
			if s.Until != want {
				t.Errorf("%s: the credit lasts until %d, want %d", limit, s.Until, want)
			}
		}
	}
}
