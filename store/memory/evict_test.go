//go:build !race

// One goroutine: the race detector would find nothing, slowly.

package memory

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// TestFloodFreesNobody (trap T37): new keys, each used once and a hundred times as many
// as fit, must not free exhausted keys.
func TestFloodFreesNobody(t *testing.T) {
	for _, maxKeys := range []int{100, 10_000} {
		for _, limit := range everyLimit() {
			if limit.N() > 10 {
				continue
			}
			t.Run(fmt.Sprint(maxKeys, limit), func(t *testing.T) {
				s := New(WithMaxKeys(maxKeys), WithMaxBytes(int64(maxKeys)*2000+1<<20))
				op := store.Op{Rule: limit.Rule(), Cost: limit.Burst(), At: t0}
				for i := range maxKeys / 4 {
					op.Key = fmt.Sprint("exhausted", i)
					if d, _ := store.Execute(t.Context(), s, op); !d.Allowed {
						t.Fatal("refused at first")
					}
				}
				op.Cost = 1
				flood := maxKeys * 100
				if maxKeys > 1000 {
					flood = maxKeys * 3
				}
				for i := range flood {
					op.Key = fmt.Sprint("new", i)
					op.At = t0 + int64(i)*500_000/int64(flood)
					if _, err := store.Execute(t.Context(), s, op); err != nil {
						t.Fatal(err)
					}
				}
				op.At = t0 + 600_000
				freed := 0
				for i := range maxKeys / 4 {
					op.Key = fmt.Sprint("exhausted", i)
					// After 0.6 s a bucket of 20 at 7/s has 4 again.
					op.Cost = 5
					if d, _ := store.Execute(t.Context(), s, op); d.Allowed {
						freed++
					}
				}
				n := s.Stats()
				if freed > 0 {
					t.Errorf("freed %d of %d; %+v", freed, maxKeys/4, n)
				}
				if n.Keys > int64(maxKeys) || n.Bytes > s.maxBytes+1<<20 || n.Evicted == 0 {
					t.Errorf("%+v", n)
				}
				checkShards(t, s)
			})
		}
	}
}

// TestNewcomerAmongDebtors fills a store with keys in debt. A newcomer with less debt
// than all of them must not evict one, and must not have unlimited use either.
func TestNewcomerAmongDebtors(t *testing.T) {
	const maxKeys = 200
	s := New(WithMaxKeys(maxKeys))
	limit := headgate.PerHour(10)
	op := store.Op{Rule: limit.Rule(), Cost: 30, Kind: store.KindCharge, At: t0}
	for i := range maxKeys {
		op.Key = fmt.Sprint("debtor", i)
		if _, err := store.Execute(t.Context(), s, op); err != nil {
			t.Fatal(err)
		}
	}
	op.Kind, op.Cost, op.Key = store.KindTake, 1, "newcomer"
	allowed := 0
	for range 100 {
		if d, _ := store.Execute(t.Context(), s, op); d.Allowed {
			allowed++
		}
	}
	if allowed != 10 {
		t.Errorf("the newcomer was allowed %d times, want 10", allowed)
	}
	if n := s.Stats(); n.Evicted != 0 || n.Waiting != 1 || n.Keys != maxKeys {
		t.Errorf("%+v", n)
	}
	// With the largest debt of all it replaces a smaller one.
	op.Kind, op.Cost = store.KindCharge, 50
	if _, err := store.Execute(t.Context(), s, op); err != nil {
		t.Fatal(err)
	}
	if n := s.Stats(); n.Evicted != 1 || n.EvictedInDebt != 1 || n.Waiting != 0 || n.Keys != maxKeys {
		t.Errorf("%+v", n)
	}
	checkShards(t, s)
}

// TestEvictsTheSmallestDebt compares a store of one shard with a model that
// looks at every key.
func TestEvictsTheSmallestDebt(t *testing.T) {
	const maxKeys = 400
	s := New(WithMaxKeys(maxKeys))
	limit := headgate.Per(1_000_000, time.Second).WithBurst(1 << 20) // a token is a microsecond
	rng := rand.New(rand.NewPCG(5, 6))
	model := make(map[string]int64) // when each is fresh
	now, skipped := int64(t0), 0
	for i := range 20_000 {
		now += rng.Int64N(5)
		op := store.Op{Key: fmt.Sprint(rng.IntN(1200)), Rule: limit.Rule(), At: now, Kind: store.KindCharge, Cost: 1 + rng.Int64N(20_000)}
		fresh, known := model[op.Key]
		if known && rng.IntN(4) == 0 {
			op.Kind = store.KindRefund
		}
		d, err := store.Execute(t.Context(), s, op)
		if err != nil {
			t.Fatal(err)
		}
		checkRanking(t, &s.shards[0])
		if known = known && fresh > now; !known && op.Kind == store.KindCharge {
			if want := op.Cost; int64(d.ResetAfter/time.Microsecond) != want {
				t.Fatalf("op %d: a key that should have been forgotten is fresh after %s", i, d.ResetAfter)
			}
		}
		switch {
		case known && op.Kind == store.KindRefund:
			fresh = max(fresh-op.Cost, now)
		case known:
			fresh += op.Cost
		case op.Kind == store.KindRefund:
			delete(model, op.Key)
			continue
		default:
			fresh = now + op.Cost
		}
		if got := now + int64(d.ResetAfter/time.Microsecond); got != fresh {
			t.Fatalf("op %d, %s of %d, known %t: fresh at %d, the model says %d", i, op.Kind, op.Cost, known, got, fresh)
		}
		model[op.Key] = fresh
		for k, at := range model {
			if at <= now {
				delete(model, k)
			}
		}
		if len(model) > maxKeys {
			lowest := op.Key
			for k, at := range model {
				if at < model[lowest] || at == model[lowest] && lowest != op.Key && forgotten(t, s, k, limit, now) {
					lowest = k
				}
			}
			if lowest == op.Key {
				// It waits; for the model it is an ordinary key.
				skipped++
				if _, err := store.Execute(t.Context(), s, store.Op{Key: op.Key, Rule: limit.Rule(), At: now, Kind: store.KindReset}); err != nil {
					t.Fatal(err)
				}
			}
			delete(model, lowest)
		}
	}
	n := s.Stats()
	if n.EvictedInDebt < 1000 || skipped < 1000 {
		t.Errorf("the test evicted too little: %+v, %d waited", n, skipped)
	}
	checkShards(t, s)
}

func forgotten(t *testing.T, s *Store, key string, limit headgate.Limit, now int64) bool {
	t.Helper()
	d, err := store.Execute(t.Context(), s, store.Op{Key: key, Rule: limit.Rule(), Kind: store.KindPeek, Cost: 1, At: now})
	if err != nil {
		t.Fatal(err)
	}
	return d.ResetAfter == 0
}

// TestMaxBytes (trap T27): lists under random keys stay within the limit.
func TestMaxBytes(t *testing.T) {
	const maxBytes = 1 << 20
	s := New(WithMaxBytes(maxBytes))
	limit := headgate.PerHour(1000).WithAlgorithm(store.SlidingLog)
	rng := rand.New(rand.NewPCG(7, 8))
	for i := range 100_000 {
		op := store.Op{Key: fmt.Sprint(rng.IntN(5000)), Rule: limit.Rule(), Cost: 1, At: t0 + int64(i)}
		if _, err := store.Execute(t.Context(), s, op); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 {
			// 50% more for the shards' fixed part.
			if n := s.Stats(); n.Bytes > maxBytes*3/2 {
				t.Fatalf("%+v", n)
			}
		}
	}
	checkShards(t, s)
	big := New()
	op := store.Op{Key: "k", Rule: headgate.PerSecond(1 << 20).WithAlgorithm(store.SlidingLog).Rule(), Cost: 1, At: t0}
	if _, err := store.Execute(t.Context(), big, op); err != nil {
		t.Fatal(err)
	}
	if n := big.Stats(); n.Bytes > 4096 {
		t.Errorf("a log of a large limit takes %d bytes before it is used", n.Bytes)
	}
}

func TestSweep(t *testing.T) {
	s := New()
	limit := headgate.PerMinute(10)
	for i := range 100_000 {
		op := store.Op{Key: fmt.Sprint(i), Rule: limit.Rule(), Cost: 1 + int64(i%2), At: t0}
		if _, err := store.Execute(t.Context(), s, op); err != nil {
			t.Fatal(err)
		}
	}
	full := s.Stats()
	if swept := s.Sweep(time.UnixMicro(t0 + 5_900_000)); swept != 0 {
		t.Errorf("swept %d that were not fresh", swept)
	}
	if swept := s.Sweep(time.UnixMicro(t0 + 6_100_000)); swept != 50_000 {
		t.Errorf("swept %d, want 50,000", swept)
	}
	if swept := s.Sweep(time.UnixMicro(t0 + 13_000_000)); swept != 50_000 {
		t.Errorf("swept %d, want 50,000", swept)
	}
	n := s.Stats()
	if n.Keys != 0 || n.Swept != 100_000 || n.Evicted != 0 || n.Bytes > full.Bytes/5 {
		t.Errorf("%+v, was %+v", n, full)
	}
	checkShards(t, s)
}

// TestSweptInPassing: even without Sweep, fresh keys make space for new ones.
func TestSweptInPassing(t *testing.T) {
	s := New()
	limit := headgate.PerSecond(1000)
	for i := range 200_000 {
		op := store.Op{Key: fmt.Sprint(i), Rule: limit.Rule(), Cost: 1, At: t0 + int64(i)*50}
		if _, err := store.Execute(t.Context(), s, op); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Stats(); n.Keys > int64(5*len(s.shards)) || n.Evicted != 0 {
		t.Errorf("%+v", n)
	}
}
