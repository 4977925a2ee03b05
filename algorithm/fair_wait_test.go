package algorithm_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// TestFairWait: a refusal says the microsecond from which on the same request passes if nobody
// else takes, whatever has been asked before: an empty bucket is soon full again, and its price
// low, so who is alone does not wait for what a horizon earns.
func TestFairWait(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 148))
	upTo := func(n int64) int64 { return 1 + rng.Int64N(1+rng.Int64N(n)) } // rather small
	seen := map[store.Reason]int{}
	for range 400 {
		limit := headgate.Per(upTo(10_000), time.Duration(upTo(int64(time.Hour/time.Microsecond)))*time.Microsecond).WithBurst(20 + upTo(100_000))
		if rng.IntN(4) == 0 {
			limit = headgate.PerMinute(600).WithBurst(20 + upTo(1000)).WithRefillEvery(time.Second)
		}
		r := limit.Rule()
		fair, err := store.NewFair(r, 10*time.Second+time.Duration(rng.Int64N(int64(store.MostHorizon-10*time.Second))))
		if err != nil {
			continue
		}
		var bucket algorithm.State
		members := make([]algorithm.State, 3)
		now, owner, wait := fairStart, 0, int64(0)
		for range 100 {
			switch rng.IntN(4) {
			case 0:
				now += rng.Int64N(fair.Time.Period / 8)
			case 1:
				now += rng.Int64N(wait + 1)
			case 2:
				now -= rng.Int64N(1000)
			}
			if rng.IntN(8) == 0 {
				owner = rng.IntN(len(members))
			}
			req := algorithm.Request{Cost: upTo(r.Burst)}
			switch rng.IntN(20) {
			case 0:
				req.Kind = store.KindCharge
			case 1:
				req.Kind, req.Duration = store.KindGrant, time.Duration(upTo(fair.Time.Period))*time.Microsecond
			case 2, 3, 4:
				req.Kind = store.KindPeek
			case 5:
				req.Cost = []int64{0, r.Burst, r.Burst + 1}[rng.IntN(3)]
			}
			share := &store.Share{Fair: fair, Weight: 1 + rng.Int64N(1+rng.Int64N(store.MaxWeight))}
			res, _ := algorithm.StepShared(r, &bucket, &members[owner], now, req, share)
			seen[res.Reason]++
			if wait = 0; res.Allowed || req.Kind != store.KindTake && req.Kind != store.KindPeek {
				continue
			}
			ask := func(at int64) bool {
				alone, own := bucket, members[owner]
				again, _ := algorithm.StepShared(r, &alone, &own, at, req, share)
				return again.Allowed
			}
			if res.RetryAfter == store.Never {
				if res.Reason != store.ReasonTooLarge || ask(now+8*fair.Time.Period) {
					t.Fatalf("never: %+v for %+v of %s", res.Decision, req, limit)
				}
				continue
			}
			wait = int64(res.RetryAfter / time.Microsecond)
			if wait < 1 || !ask(now+wait) || ask(now+wait-1) || ask(now+rng.Int64N(wait)) {
				t.Fatalf("%+v for %+v of %s, weight %d, horizon %d µs: %t at that time, %t a microsecond before",
					res.Decision, req, limit, share.Weight, fair.Time.Period, ask(now+wait), ask(now+wait-1))
			}
			if bucket.Credit == 0 && members[owner].V[0] <= fair.Time.Capacity && wait > int64(res.ResetAfter/time.Microsecond)+fair.Time.Period/2 {
				t.Fatalf("%+v for %+v of %s: half a horizon after the bucket is full", res.Decision, req, limit)
			}
		}
	}
	for _, want := range []store.Reason{store.ReasonOK, store.ReasonShare, store.ReasonLimited, store.ReasonTooLarge} {
		if seen[want] < 50 {
			t.Errorf("%d answers are %s", seen[want], want)
		}
	}
}

// TestFairWaitAlone: the waits of clients that are alone, after their burst.
func TestFairWaitAlone(t *testing.T) {
	for _, test := range []struct {
		limit   headgate.Limit
		horizon time.Duration
		cost    int64
		most    time.Duration
	}{
		{headgate.PerSecond(1000), time.Hour, 10, 150 * time.Millisecond},
		{headgate.PerSecond(100).WithBurst(200), time.Hour, 20, 700 * time.Millisecond},
		{headgate.PerSecond(100).WithBurst(200), time.Hour, 1, 150 * time.Millisecond},
		{headgate.PerSecond(100).WithBurst(200), 10 * time.Minute, 20, 400 * time.Millisecond},
		{headgate.PerSecond(100).WithBurst(200), time.Minute, 20, 400 * time.Millisecond},
		{headgate.PerSecond(100).WithBurst(200), 10 * time.Second, 20, 400 * time.Millisecond},
		{headgate.PerSecond(10).WithBurst(100), 24 * time.Hour, 1, 500 * time.Millisecond},
	} {
		fair, err := store.NewFair(test.limit.Rule(), test.horizon)
		if err != nil {
			t.Fatal(err)
		}
		var bucket, owner algorithm.State
		for {
			res, _ := algorithm.StepShared(test.limit.Rule(), &bucket, &owner, fairStart, algorithm.Request{Cost: test.cost}, &store.Share{Fair: fair, Weight: 1})
			if res.Allowed {
				continue
			}
			if res.RetryAfter > test.most {
				t.Errorf("%s, horizon %s, cost %d: %s", test.limit, test.horizon, test.cost, res.Decision)
			}
			break
		}
	}
}
