package algorithm

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// BenchmarkStep measures one allowed take per algorithm, on a state that stays about
// half full.
func BenchmarkStep(b *testing.B) {
	for _, a := range store.Algorithms() {
		b.Run(a.String(), func(b *testing.B) {
			limit := headgate.Per(1000, time.Second).WithAlgorithm(a)
			var s State
			now := int64(1_700_000_000_000_000)
			b.ReportAllocs()
			for b.Loop() {
				now += 2000
				if res := Step(limit.Rule(), &s, now, Request{Cost: 1}); !res.Allowed {
					b.Fatal("refused")
				}
			}
		})
	}
}

// BenchmarkSteps measures the same for a bucket that refills in steps.
func BenchmarkSteps(b *testing.B) {
	limit := headgate.Per(1000, time.Second).WithRefillEvery(100 * time.Millisecond)
	var s State
	now := int64(1_700_000_000_000_000)
	b.ReportAllocs()
	for b.Loop() {
		now += 2000
		if res := Step(limit.Rule(), &s, now, Request{Cost: 1}); !res.Allowed {
			b.Fatal("refused")
		}
	}
}

// BenchmarkTake measures the same as BenchmarkStep/token_bucket, with Take.
func BenchmarkTake(b *testing.B) {
	limit := headgate.Per(1000, time.Second)
	var state Bucket
	var d store.Decision
	now := int64(1_700_000_000_000_000)
	b.ReportAllocs()
	for b.Loop() {
		now += 2000
		if state, _, _ = Take(limit.Rule(), state, now, 1, &d); !d.Allowed {
			b.Fatal("refused")
		}
	}
}

// BenchmarkFair measures a take of one who shares a bucket: one that passes, and refusals of
// who is alone, with a long horizon, and of one of a hundred who hammer.
func BenchmarkFair(b *testing.B) {
	limit := headgate.PerSecond(1000).Rule()
	for _, test := range []struct {
		name    string
		horizon time.Duration
		share   int64 // of the rate, in thousandths
	}{
		{"passes", 10 * time.Second, 0}, {"alone", time.Hour, 1000}, {"hammers", 10 * time.Second, 10},
	} {
		b.Run(test.name, func(b *testing.B) {
			fair, err := store.NewFair(limit, test.horizon)
			if err != nil {
				b.Fatal(err)
			}
			share := &store.Share{Fair: fair, Weight: 1}
			var bucket, owner State
			now := int64(1_700_000_000_000_000)
			if test.share > 0 {
				Step(limit, &bucket, now, Request{Kind: store.KindCharge, Cost: 1000 - test.share/2})
				for res := (Result{Decision: store.Decision{Allowed: true}}); res.Allowed; {
					res, _ = StepShared(limit, &bucket, &owner, now, Request{Cost: 1}, share)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if test.share == 0 {
					now += 2000
				}
				if res, _ := StepShared(limit, &bucket, &owner, now, Request{Cost: 1}, share); res.Allowed != (test.share == 0) {
					b.Fatal(res.Decision)
				}
			}
		})
	}
}
