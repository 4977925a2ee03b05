package failsafe_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/failsafe"
)

// instant answers at once.
type instant struct{ decision store.Decision }

func (i instant) Do(_ context.Context, b *store.Batch) {
	b.Each(func([]store.Op, []store.Decision, store.Mode) error {
		return nil
	})
}
func (i instant) Close() error { return nil }

// refused lasts longer than any test.
var refused = store.Decision{Reason: store.ReasonLimited, RetryAfter: time.Hour}

func newRefusing() *failsafe.Store {
	return failsafe.New(instant{refused}, failsafe.Options{DenyCache: failsafe.DenyCache{Entries: 1024, MaxAge: time.Hour}})
}

// TestAllocations: what the wrapper adds to a call.
func TestAllocations(t *testing.T) {
	open := failsafe.New(&fake{answer: func(store.Op) (store.Decision, error) { return store.Decision{}, errBroken }},
		failsafe.Options{Breaker: failsafe.Breaker{OpenFor: time.Hour}})
	for open.Stats().State == failsafe.Closed {
		_, _ = store.Execute(context.Background(), open, op("k"))
	}
	hit := newRefusing()
	_, _ = store.Execute(context.Background(), hit, op("k"))
	through := failsafe.New(instant{store.Decision{Allowed: true}}, failsafe.Options{DenyCache: failsafe.DenyCache{Entries: 1024}})
	_, _ = store.Execute(context.Background(), through, op("k"))
	cancelable, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, tt := range []struct {
		name  string
		store store.Store
		ctx   context.Context
		most  float64
	}{
		{"deny cache hit", hit, context.Background(), 0},
		{"breaker open", open, context.Background(), 0},
		{"through", through, context.Background(), 0},
		{"through, with a context of the caller's", through, cancelable, 1},
	} {
		o := op("k")
		got := testing.AllocsPerRun(1000, func() { _, _ = store.Execute(tt.ctx, tt.store, o) })
		if got > tt.most+0.2 { // sometimes a timer
			t.Errorf("%s: %v allocations, want at most %v", tt.name, got, tt.most)
		}
	}
}

func BenchmarkThrough(b *testing.B) {
	s := failsafe.New(instant{store.Decision{Allowed: true}}, failsafe.Options{})
	benchmark(b, s)
}

func BenchmarkThroughGoroutine(b *testing.B) {
	s := failsafe.New(instant{store.Decision{Allowed: true}}, failsafe.Options{IgnoresContext: true})
	benchmark(b, s)
}

func BenchmarkThroughDenyCacheMiss(b *testing.B) {
	s := failsafe.New(instant{store.Decision{Allowed: true}}, failsafe.Options{DenyCache: failsafe.DenyCache{Entries: 16384}})
	benchmark(b, s)
}

func BenchmarkOpen(b *testing.B) {
	f := &fake{}
	f.fails()
	s := failsafe.New(f, failsafe.Options{Breaker: failsafe.Breaker{OpenFor: time.Hour}})
	for s.Stats().State == failsafe.Closed {
		_, _ = store.Execute(context.Background(), s, op("k"))
	}
	benchmark(b, s)
}

func BenchmarkDenyCacheHit(b *testing.B) { benchmark(b, newRefusing()) }

func benchmark(b *testing.B, s *failsafe.Store) {
	b.Helper()
	b.ReportAllocs()
	o := op("198.51.100.7")
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, _ = store.Execute(context.Background(), s, o)
		}
	})
}
