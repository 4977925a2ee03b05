package algorithm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// headroomVectors are histories of classes of requests, each of which must leave more of the
// limit than the one before.
func headroomVectors(t *testing.T, a store.Algorithm) (all []vector) {
	t.Helper()
	rng := rand.New(rand.NewPCG(20260103, uint64(a)))
	limits := vectorLimits(a)
	for i, limit := range append(limits, limits[0], headgate.Per(1000, time.Second).WithAlgorithm(a)) {
		if !limit.Rule().CanKeep() {
			continue
		}
		h := &history{T: t, rng: rng, limit: limit, now: t0}
		r := record(t, fmt.Sprintf("headroom %d: %s", i+1, limit), limit)
		for range 40 {
			h.tick()
			if h.travel() {
				r.change(h.limit)
			}
			req := h.randomRequest()
			if rng.IntN(2) == 0 {
				req.Kind = pick(rng, store.KindTake, store.KindTake, store.KindPeek)
			}
			req.Cost, req.Duration = min(req.Cost, huge), min(req.Duration, micros(huge))/time.Microsecond*time.Microsecond
			r.leave = pick[uint32](rng, 0, 1, 200_000, 200_000, 300_000, store.Whole)
			h.prior = r.step(h.now, req)
			h.note()
		}
		all = append(all, r.vector)
	}
	return all
}

// TestHeadroomIsKept: whatever the others ask for, requests of the highest class that keep to
// a limit of the size of the headroom are never refused, and all together stay within the
// whole limit, as without headroom.
func TestHeadroomIsKept(t *testing.T) {
	const fifth = store.Whole / 5
	rng := newRand(t)
	for run := range 400 {
		a := pick(rng, store.TokenBucket, store.FixedWindow, store.SlidingLog)
		limit := headgate.Per(5+rng.Int64N(100), micros(1+near(rng, 10_000, 60_000_000))).WithAlgorithm(a)
		if a == store.TokenBucket {
			limit = limit.WithBurst(5 + rng.Int64N(50))
		}
		r := limit.Rule()
		leave := (&store.Op{Rule: r, Leave: fifth}).Kept()
		// own is the part of the critical: of a bucket the whole rate and a part of the
		// burst, of a window its part of the limit, in a fixed one spread over the window.
		own := limit.WithBurst(leave).Rule()
		switch a { //nolint:exhaustive // the three above
		case store.FixedWindow:
			own = headgate.Per(max(r.Limit/5, 1), micros(r.Period)).WithBurst(1).Rule()
		case store.SlidingLog:
			own = headgate.Per(leave, micros(r.Period)).WithAlgorithm(a).Rule()
		}
		var s, part State
		var passed []admission
		now, gap := int64(t0), max(r.Period/(4*r.Limit), 1)
		for range 400 {
			if now += rng.Int64N(gap + 1); rng.IntN(40) == 0 {
				now += rng.Int64N(r.Period)
			}
			req := Request{Kind: store.KindTake, Cost: 1 + rng.Int64N(2), Leave: leave}
			if rng.IntN(4) == 0 && Step(own, &part, now, Request{Kind: store.KindTake, Cost: 1}).Allowed {
				req.Cost, req.Leave = 1, 0
			}
			res := Step(r, &s, now, req)
			switch {
			case res.Allowed:
				passed = append(passed, admission{now, res.Granted})
			case req.Leave == 0:
				t.Fatalf("run %d, %s: a critical request within its part was refused at %d: %s; %s", run, limit, now-t0, show(res), showState(&s))
			}
		}
		checkBound(t, limit, passed)
	}
}

// checkBound checks that no window of a period has more than burst and rate allow, nor any
// fixed window more than the limit.
func checkBound(t *testing.T, limit headgate.Limit, passed []admission) {
	t.Helper()
	r := limit.Rule()
	for i := range passed {
		total := int64(0)
		for _, p := range passed[i:] {
			w := p.at - passed[i].at
			if r.Algorithm == store.FixedWindow && p.at/r.Period != passed[i].at/r.Period || r.Algorithm == store.SlidingLog && w >= r.Period {
				break
			}
			most := r.Limit
			if total += p.count; r.Algorithm == store.TokenBucket {
				most = r.Burst + (r.Limit*w+r.Period-1)/r.Period
			}
			if total > most {
				t.Fatalf("%s: %d in %dµs", limit, total, w)
			}
		}
	}
}

// TestHeadroomOfSlots: who holds no more slots than are kept always gets one.
func TestHeadroomOfSlots(t *testing.T) {
	rng := newRand(t)
	for range 200 {
		r := headgate.Concurrent(1 + rng.Int64N(60)).WithLease(time.Hour).Rule()
		leave := (&store.Op{Rule: r, Leave: uint32(1 + rng.IntN(store.Whole))}).Kept()
		var s State
		var held [2][]int64 // of the critical, and of the others
		for now := int64(t0); now < t0+300; now++ {
			class := rng.IntN(2)
			if list := held[class]; len(list) > 0 && rng.IntN(3) == 0 {
				Step(r, &s, now, Request{Kind: store.KindRelease, Cost: 1, Lease: list[0]})
				held[class] = list[1:]
				continue
			}
			if class == 0 && int64(len(held[0])) == leave {
				continue
			}
			res := Step(r, &s, now, Request{Kind: store.KindTake, Cost: 1, Leave: int64(class) * leave})
			if !res.Allowed && class == 0 {
				t.Fatalf("%d of %d are kept, %d held, and one more was refused: %s", leave, r.Limit, len(held[0]), show(res))
			}
			if res.Allowed {
				held[class] = append(held[class], res.Lease)
			}
			if all := int64(len(held[0]) + len(held[1])); all > r.Limit {
				t.Fatalf("%d slots of %d are held", all, r.Limit)
			}
		}
	}
}

// TestHeadroomTrace is the example of docs/more/priorities.md.
func TestHeadroomTrace(t *testing.T) {
	bucket := headgate.PerSecond(10)
	window := headgate.PerSecond(10).WithAlgorithm(store.FixedWindow)
	for _, row := range []struct {
		limit       headgate.Limit
		took, at    int64 // how much was taken at 0, and when 1 is asked for, in milliseconds
		cost, leave int64
		want        string
	}{
		{bucket, 7, 0, 1, 2, "allowed (ok) 0 left"},
		{bucket, 8, 0, 1, 2, "refused (headroom) 0 left, retry after 100ms"},
		{bucket, 8, 0, 1, 0, "allowed (ok) 1 left"},
		{bucket, 8, 100, 1, 2, "allowed (ok) 0 left"},
		{bucket, 10, 0, 1, 2, "refused (limited) 0 left, retry after 300ms"},
		{bucket, 0, 0, 9, 2, "refused (too_large) 8 left, never"},
		{window, 8, 0, 1, 2, "refused (headroom) 0 left, retry after 500ms"},
		{window, 8, 499, 1, 2, "refused (headroom) 0 left, retry after 1ms"},
		{window, 8, 500, 1, 2, "allowed (ok) 0 left"},
		{window, 10, 900, 1, 2, "refused (limited) 0 left, retry after 100ms"},
	} {
		var s State
		Step(row.limit.Rule(), &s, t0, Request{Kind: store.KindTake, Cost: row.took})
		d := Step(row.limit.Rule(), &s, t0+row.at*1000, Request{Kind: store.KindTake, Cost: row.cost, Leave: row.leave})
		got := fmt.Sprintf("allowed (%s) %d left", d.Reason, d.Remaining)
		if !d.Allowed {
			got = fmt.Sprintf("refused (%s) %d left, retry after %s", d.Reason, d.Remaining, d.RetryAfter)
			if d.RetryAfter == store.Never {
				got = fmt.Sprintf("refused (%s) %d left, never", d.Reason, d.Remaining)
			}
		}
		if got != row.want {
			t.Errorf("%s, %d taken, after %d ms %d leaving %d: %s, want %s", row.limit, row.took, row.at, row.cost, row.leave, got, row.want)
		}
	}
}
