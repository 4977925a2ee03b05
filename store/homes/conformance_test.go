package homes_test

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// scattered gives each key a home.
type scattered struct {
	headgate.Store
	*testing.T
}

func scatter(op headgate.Op) headgate.Op {
	h := fnv.New32()
	_, _ = h.Write([]byte(op.Key))
	op.Limit = home([]string{"us", "eu", "ap"}[h.Sum32()%3], op.Limit)
	return op
}

func (s scattered) Do(ctx context.Context, b *headgate.Batch) {
	b.Each(func(ops []headgate.Op, out []headgate.Decision, mode headgate.Mode) error {
		mine := make([]headgate.Op, len(ops))
		for i := range ops {
			mine[i] = scatter(ops[i])
		}
		err := headgate.ExecuteAll(ctx, s.Store, mine, out, mode)
		if errors.Is(err, store.ErrCrossSlot) {
			s.Skip("kinds that cannot be undone; TestDifferential has the others")
		}
		return err
	})
}

// The keys of every case are in three regions, and the answers are those of one store.
func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Harness{Open: func(t *testing.T) headgate.Store {
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
		headgate.PerMinute(5), headgate.PerMinute(6).Burst(3), headgate.PerMinute(4).Using(headgate.LeakyBucket),
		headgate.PerMinute(5).Using(headgate.FixedWindow), headgate.PerMinute(5).Using(headgate.SlidingLog),
		headgate.PerMinute(5).Using(headgate.SlidingWindow), headgate.PerMinute(5).Using(headgate.SlidingBuckets),
	}
	kinds := []headgate.Kind{headgate.Take, headgate.Take, headgate.Take, headgate.Peek}
	split, one := newWorld(t, false).store, memory.New()
	now, refused := int64(at), 0
	for range 20_000 {
		now += r.Int64N(3_000_000)
		ops := make([]headgate.Op, 2+r.IntN(4))
		keys := r.Perm(8) // each key once: parts in different regions are not in order
		for i := range ops {
			k := keys[i]
			ops[i] = headgate.Op{Key: strconv.Itoa(k), Limit: limits[k%len(limits)], Cost: r.Int64N(4), At: now, Kind: kinds[r.IntN(len(kinds))]}
		}
		mode := headgate.Mode(r.IntN(2))
		got, want := make([]headgate.Decision, len(ops)), make([]headgate.Decision, len(ops))
		if err := headgate.ExecuteAll(t.Context(), (scattered{split, t}), ops, got, mode); err != nil {
			t.Fatal(err)
		}
		if err := headgate.ExecuteAll(t.Context(), one, ops, want, mode); err != nil {
			t.Fatal(err)
		}
		for i := range ops {
			if got[i] != want[i] {
				t.Fatalf("%s of %d, %s, at %d:\n got %+v\nwant %+v", ops[i].Kind, ops[i].Cost, ops[i].Limit, now, got[i], want[i])
			}
			if !want[i].Allowed && mode == headgate.AllOrNothing {
				refused++
			}
		}
	}
	if refused < 1000 {
		t.Errorf("only %d refusals had something to undo", refused)
	}
}
