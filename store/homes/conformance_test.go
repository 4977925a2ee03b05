package homes_test

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// scattered gives each key a home.
type scattered struct {
	store.Store
	*testing.T
}

func scatter(op store.Op) store.Op {
	h := fnv.New32()
	_, _ = h.Write([]byte(op.Key))
	op.Rule = home([]string{"us", "eu", "ap"}[h.Sum32()%3], headgate.LimitOf(op.Rule)).Rule()
	return op
}

func (s scattered) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		mine := make([]store.Op, len(ops))
		for i := range ops {
			mine[i] = scatter(ops[i])
		}
		err := store.ExecuteAll(ctx, s.Store, mine, out, mode)
		if errors.Is(err, store.ErrCrossSlot) {
			s.Skip("kinds that cannot be undone; TestDifferential has the others")
		}
		return err
	})
}

// The keys of every case are in three regions, and the answers are those of one store.
func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Harness{Open: func(t *testing.T) store.Store {
		if strings.HasSuffix(t.Name(), "/DifferentialBatches") {
			t.Skip("several regions answer fewer kinds alike; TestDifferential has these")
		}
		return scattered{newWorld(t, false).store, t}
	}})
}

// TestDifferential: random calls about keys in three regions are answered as by one
// store, field by field, and count the same.
func TestDifferential(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	limits := []headgate.Limit{
		headgate.PerMinute(5), headgate.PerMinute(6).WithBurst(3), headgate.PerMinute(4).WithAlgorithm(store.LeakyBucket),
		headgate.PerMinute(5).WithAlgorithm(store.FixedWindow), headgate.PerMinute(5).WithAlgorithm(store.SlidingLog),
		headgate.PerMinute(5).WithAlgorithm(store.SlidingWindow), headgate.PerMinute(5).WithAlgorithm(store.SlidingBuckets),
	}
	kinds := []store.Kind{store.KindTake, store.KindTake, store.KindTake, store.KindPeek}
	split, one := newWorld(t, false).store, memory.New()
	now, refused := int64(at), 0
	for range 20_000 {
		now += r.Int64N(3_000_000)
		ops := make([]store.Op, 2+r.IntN(4))
		keys := r.Perm(8) // each key once: parts in different regions are not in order
		for i := range ops {
			k := keys[i]
			ops[i] = store.Op{Key: strconv.Itoa(k), Rule: limits[k%len(limits)].Rule(), Cost: r.Int64N(4), At: now, Kind: kinds[r.IntN(len(kinds))]}
		}
		mode := store.Mode(r.IntN(2))
		got, want := make([]store.Decision, len(ops)), make([]store.Decision, len(ops))
		if err := store.ExecuteAll(t.Context(), (scattered{split, t}), ops, got, mode); err != nil {
			t.Fatal(err)
		}
		if err := store.ExecuteAll(t.Context(), one, ops, want, mode); err != nil {
			t.Fatal(err)
		}
		for i := range ops {
			if got[i] != want[i] {
				t.Fatalf("%s of %d, %s, at %d:\n got %+v\nwant %+v", ops[i].Kind, ops[i].Cost, ops[i].Rule, now, got[i], want[i])
			}
			if !want[i].Allowed && mode == store.AllOrNothing {
				refused++
			}
		}
	}
	if refused < 1000 {
		t.Errorf("only %d refusals had something to undo", refused)
	}
}
