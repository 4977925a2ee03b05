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
