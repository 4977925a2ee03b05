package memory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// busy takes n at now as a processor would that shares the key with others.
func (s *Store) busy(key string, limit headgate.Limit, now, n int64) (d store.Decision) {
	r := limit.Rule().AsBucket()
	scope, mark := r.Space()
	id := s.secret.identify(scope, key, mark)
	s.warmFor(id, r)
	s.takeBusy(id, r, now, n, 0, &d)
	return d
}

// warmFor closes the bucket of id's shard, and lets it be for id.
func (s *Store) warmFor(id identity, r *store.Rule) {
	i := s.shardIndex(id)
	h := s.lock(i, 0)
	defer h.mu.Unlock()
	if c := s.hints[i].hot.Load(); c == nil || c.rule != nil && !c.isFor(id, r) {
		h.warm(s)
	}
}

// TestHotDecidesExactly makes the same random requests to a store with a hot bucket and to
// one without. Every answer must be the same.
func TestHotDecidesExactly(t *testing.T) {
	limits := []headgate.Limit{
		headgate.PerSecond(100),
		headgate.PerSecond(1_000_000),
		headgate.PerSecond(1_000_000).WithBurst(50),
		headgate.PerSecond(1_000_000_000),
		headgate.PerSecond(300_000).WithBurst(2000),
		headgate.PerSecond(7),
		headgate.PerHour(1_000_000_000),
		headgate.PerSecond(1000).WithAlgorithm(store.LeakyBucket),
	}
	seed := rand.Uint64()
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	allowed, refused := 0, 0
	for run := range 400 {
		limit := limits[run%len(limits)]
		s, exact := New(WithMaxKeys(100)), New(WithMaxKeys(100))
		now := int64(t0)
		for step := range 300 {
			now += []int64{0, 0, 0, 0, 1, 1, 2, 7, 30, 1000, 100_000}[rng.IntN(11)]
			n := []int64{1, 1, 1, 2, 9, 40}[rng.IntN(6)]
			op := store.Op{Key: "k", Rule: limit.Rule(), Cost: n, At: now}
			if rng.IntN(10) == 0 {
				op.Kind = []store.Kind{store.KindPeek, store.KindRefund, store.KindCharge, store.KindReset, store.KindTake}[rng.IntN(5)]
				if op.Kind == store.KindTake {
					op.Key = "other" // in the same shard
				}
				got, err := store.Execute(context.Background(), s, op)
				want, _ := store.Execute(context.Background(), exact, op)
				if err != nil || got != want {
					t.Fatalf("run %d step %d: %v of %d of %s: got %+v, want %+v (%v)", run, step, op.Kind, n, limit, got, want, err)
				}
				continue
			}
			got := s.busy("k", limit, now, n)
			want, _ := store.Execute(context.Background(), exact, op)
			if got != want {
				t.Fatalf("run %d step %d: take %d of %s: got %+v, want %+v", run, step, n, limit, got, want)
			}
			if want.Allowed {
				allowed++
			} else {
				refused++
			}
		}
	}
	if allowed < 10_000 || refused < 10_000 {
		t.Errorf("%d allowed and %d refused say little", allowed, refused)
	}
}

// TestManyAtOnce: while the clock stands still, exactly the limit passes, and
// afterwards the store is as if one had asked.
func TestManyAtOnce(t *testing.T) {
	const burst, goroutines = 50_000, 8
	var now atomic.Int64
	now.Store(int64(t0))
	clock := WithClock(func() time.Time { return time.UnixMicro(now.Load()) })
	s, exact := New(clock), New(clock)
	limit := headgate.PerSecond(burst)
	limiter := headgate.New(s)
	want := int64(burst)
	for round := range 4 {
		var allowed atomic.Int64
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() {
				for range burst / 4 {
					if s.busy("k", limit, now.Load(), 1).Allowed {
						allowed.Add(1)
					}
				}
			})
		}
		all.Wait()
		if allowed.Load() != want {
			t.Fatalf("round %d: %d of %d passed, want %d", round, allowed.Load(), goroutines*burst/4, want)
		}
		_, _ = headgate.New(exact).AllowN(context.Background(), "k", limit, want)
		got, _ := limiter.Peek(context.Background(), "k", limit)
		if as, _ := headgate.New(exact).Peek(context.Background(), "k", limit); got != as {
			t.Fatalf("round %d: left %+v, want %+v", round, got, as)
		}
		now.Add(100_000)
		want = burst / 10
	}
}

// TestEverythingAtOnce takes, refunds, peeks, saves, sweeps and uses another key of the
// same shard, all at once: nothing is lost, and nothing passes twice.
func TestEverythingAtOnce(t *testing.T) {
	const burst = 20_000
	s := New(WithMaxKeys(100), at(t0))
	limit := headgate.PerHour(burst)
	ctx := context.Background()
	var net, left atomic.Int64
	left.Store(4)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			defer left.Add(-1)
			for i := range burst {
				if s.busy("k", limit, int64(t0), 1).Allowed {
					net.Add(1)
				}
				if i%100 == 0 {
					// Refund first in the count, so that it is never too high.
					net.Add(-1)
					if _, err := store.Execute(ctx, s, store.Op{Key: "k", Rule: limit.Rule(), Cost: 1, Kind: store.KindRefund}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Go(func() {
		limiter := headgate.New(s)
		for i := 0; left.Load() > 0; i++ {
			_, _ = limiter.Peek(ctx, "k", limit)
			_, _ = limiter.Allow(ctx, fmt.Sprint("other", i%10), limit)
			s.Sweep(time.UnixMicro(t0))
			s.Stats()
		}
	})
	all.Wait()
	d, err := headgate.New(s).Peek(ctx, "k", limit)
	if err != nil || d.Remaining != burst-net.Load() {
		t.Errorf("%d remain after %d of %d (%v)", d.Remaining, net.Load(), burst, err)
	}
}

// TestHotSlack: timing requests a little early admits no more than that time refills, and
// refuses none that fits.
func TestHotSlack(t *testing.T) {
	const burst, cost, micros = 1_000_000, 700, 50_000
	limit := headgate.PerSecond(burst) // a token in a microsecond
	s := New()
	r := limit.Rule().AsBucket()
	scope, mark := r.Space()
	id := s.secret.identify(scope, "k", mark)
	s.warmFor(id, r)
	if !evensOut(r) {
		t.Fatal("this limit is not timed early")
	}
	sum := int64(0)
	for i := range int64(micros) {
		for range 2 {
			var d store.Decision
			if s.takeBusy(id, r, t0+i, cost, mostSlack, &d); d.Allowed {
				sum += cost
			} else if exactly := burst + i - sum; exactly >= cost {
				t.Fatalf("after %d µs %d tokens were refused of %d", i, cost, exactly)
			}
			if sum > burst+i+mostSlack {
				t.Fatalf("after %d µs %d tokens passed", i, sum)
			}
		}
	}
	if sum < burst+micros-2*cost {
		t.Errorf("%d tokens passed", sum)
	}
}

// TestHotComesAndGoes: a shard has a hot bucket after requests for one key had to wait for
// its lock again and again, and no longer when keys that take turns get nothing from it.
func TestHotComesAndGoes(t *testing.T) {
	limit := headgate.PerSecond(1_000_000)
	s := New(WithMaxKeys(100)) // one shard
	r := limit.Rule().AsBucket()
	scope, mark := r.Space()
	id, other := s.secret.identify(scope, "k", mark), s.secret.identify(scope, "other", mark)
	h, hint := s.shard(id), &s.hints[s.shardIndex(id)]
	before := s.Stats().Bytes
	var d store.Decision
	for i := range int64(hotAfter) {
		if hint.hot.Load() != nil {
			t.Fatalf("a hot bucket after %d requests that waited", i)
		}
		s.takeTable(id, r, t0+i, 1, &d, nil)
	}
	if hint.hot.Load() == nil || s.Stats().Bytes <= before {
		t.Fatal("no hot bucket for a busy key")
	}
	for i := range int64(mostWasted + 10) {
		s.takeOne(id, r, t0+100+i, 1, 0, &d)
		s.takeOne(other, r, t0+100+i, 1, 0, &d)
	}
	if hint.hot.Load() != nil {
		t.Error("keys that take turns still have a hot bucket")
	}
	if i, found := h.find(id); !found || h.slots[i].bucket().Used == 0 {
		t.Error("the bucket was lost")
	}
}

// TestTicketOfALaterGeneration: a request that looks at a bucket, waits, and gets a ticket
// after others have opened it again, is counted once and answered.
func TestTicketOfALaterGeneration(t *testing.T) {
	limit := headgate.PerHour(10)
	for name, again := range map[string]int{"the open one": 0, "one that is over": 1, "one that is long over": 2} {
		s := New()
		s.busy("k", limit, t0, 1)
		r := limit.Rule().AsBucket()
		scope, mark := r.Space()
		id := s.secret.identify(scope, "k", mark)
		c := s.hints[s.shardIndex(id)].hot.Load()
		word := c.tickets.Add(^uint64(0))
		for range again {
			c.mu.Lock()
			c.open(c.close())
			c.mu.Unlock()
		}
		var d store.Decision
		if c.exchange(word, r, t0, 1, &d); !d.Allowed || d.Granted != 1 || d.Remaining > 8 {
			t.Errorf("a ticket of %s: %+v", name, d)
		}
		passed := 2
		for range 20 {
			if s.busy("k", limit, t0, 1).Allowed {
				passed++
			}
		}
		if passed != 10 {
			t.Errorf("a ticket of %s: %d passed, want 10", name, passed)
		}
	}
}

// TestHotKeepsItsTime: a Peek far in the future leaves a hot bucket as it is.
func TestHotKeepsItsTime(t *testing.T) {
	limit := headgate.PerHour(10)
	s := New()
	for range 10 {
		s.busy("k", limit, t0, 1)
	}
	op := store.Op{Key: "k", Rule: limit.Rule(), Cost: 1, Kind: store.KindPeek, At: t0 + int64(time.Hour/time.Microsecond)}
	if d, err := store.Execute(context.Background(), s, op); err != nil || d.Remaining != 10 {
		t.Errorf("in an hour %d remain (%v), want 10", d.Remaining, err)
	}
	if d := s.busy("k", limit, t0+1, 1); d.Allowed {
		t.Error("a request passed because somebody looked at a later time")
	}
}

// alwaysHot is a store whose keys are all busy.
type alwaysHot struct{ *Store }

func (s alwaysHot) Do(ctx context.Context, b *store.Batch) {
	if store.Single(b) {
		op := &b.Ops[0]
		if r := op.Rule.AsBucket(); r != nil && !s.closed.Load() {
			scope, mark := op.Space()
			id := s.secret.identify(scope, op.Key, mark)
			if c := s.hints[s.shardIndex(id)].hot.Load(); c == nil || !c.isFor(id, r) {
				s.warmFor(id, r)
			}
		}
	}
	s.Store.Do(ctx, b)
}

func TestConformanceOfHotKeys(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Open: func(*testing.T) store.Store { return alwaysHot{New(WithMaxKeys(1000))} },
	})
}
