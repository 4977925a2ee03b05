//go:build !race

// One goroutine: the race detector would find nothing, slowly.

package memory

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// TestChurnOfLists: lists of all sizes that come, grow and go leave no memory behind.
func TestChurnOfLists(t *testing.T) {
	limits := []headgate.Limit{
		headgate.PerHour(5000).WithAlgorithm(store.SlidingLog),
		headgate.PerHour(1 << 40).WithAlgorithm(store.SlidingBuckets),
		headgate.PerHour(200).WithAlgorithm(store.SlidingBuckets),
		headgate.PerMinute(5000).WithAlgorithm(store.Concurrency),
		headgate.PerHour(10),
	}
	for _, maxKeys := range []int{100, 8000, 1_000_000} {
		s := New(WithMaxKeys(maxKeys))
		rng := rand.New(rand.NewPCG(3, 4))
		now, most := int64(t0), int64(0)
		for round := range 40 {
			for i := range min(maxKeys, 8000) - 200 { // a large table
				op := store.Op{Key: "other" + string(key(nil, uint64(i))), Rule: limits[len(limits)-1].Rule(), Cost: 1, At: now}
				if _, err := store.Execute(t.Context(), s, op); err != nil {
					t.Fatal(err)
				}
			}
			if large := s.shards[0].isLarge(); large != (maxKeys == 8000) {
				t.Fatalf("%d keys: large is %t", maxKeys, large)
			}
			for range 5000 {
				now += rng.Int64N(1000)
				limit := limits[rng.IntN(len(limits))]
				op := store.Op{Key: string(key(nil, rng.Uint64N(200))), Rule: limit.Rule(), Cost: 1 + rng.Int64N(limit.N()/100+1), At: now}
				switch rng.IntN(20) {
				case 0:
					op.Kind = store.KindReset
				case 1:
					op.Kind, op.Duration = store.KindGrant, time.Hour
				case 2:
					op.Kind = store.KindRefund
				}
				if _, err := store.Execute(t.Context(), s, op); err != nil {
					t.Fatal(err)
				}
			}
			checkShards(t, s)
			live := int64(0)
			for i := range s.shards {
				for p := range s.shards[i].listed() {
					live += 8 * int64(len(s.shards[i].lists.block(place(p.a))))
				}
			}
			held := heldByLists(s)
			if most = max(most, held); held > 2*live+int64(len(s.shards))*pieceWords/4+8*(mostDead+pieceWords) {
				t.Fatalf("round %d: %d bytes for %d in blocks", round, held, live)
			}
			if round%10 == 9 {
				now += 7_200_000_000 // all are fresh
			}
		}
		s.Sweep(time.UnixMicro(now))
		if n := s.Stats(); n.Keys != 0 || heldByLists(s) != 0 {
			t.Errorf("%+v, and %d bytes of lists after a sweep, at most %d before", n, heldByLists(s), most)
		}
		checkShards(t, s)
	}
}

// heldByLists returns the size of the pieces.
func heldByLists(s *Store) (bytes int64) {
	for i := range s.shards {
		l := &s.shards[i].lists
		bytes += int64(cap(l.more)) * pieceBytes
		for j := range l.count() {
			bytes += 8 * int64(len(l.piece(j).words))
		}
	}
	return bytes
}

// TestCountersWiden: a key whose counters grow from 1 byte to 8 keeps its counts
// and those of its neighbours.
func TestCountersWiden(t *testing.T) {
	s := New(WithMaxKeys(100))
	limit := headgate.PerHour(1 << 40).WithAlgorithm(store.SlidingBuckets)
	take := func(key string, n int64) int64 {
		d, err := store.Execute(t.Context(), s, store.Op{Key: key, Rule: limit.Rule(), Cost: n, At: t0})
		if err != nil {
			t.Fatal(err)
		}
		return limit.N() - d.Remaining
	}
	keys, used := []string{"a", "b", "c", "d"}, int64(0)
	sizes := []int{}
	for _, n := range []int64{200, 60_000, 1 << 31, 1 << 39} {
		used += n
		for _, key := range keys {
			if got := take(key, n); got != used {
				t.Errorf("%s: %d counted, want %d", key, got, used)
			}
		}
		checkShards(t, s)
		for p := range s.shards[0].listed() {
			sizes = append(sizes, place(p.a).size())
			break
		}
	}
	for i := 1; i < len(sizes); i++ {
		if sizes[i] <= sizes[i-1] {
			t.Errorf("blocks of %v words: they do not grow", sizes)
		}
	}
}
