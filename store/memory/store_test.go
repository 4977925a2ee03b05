package memory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

const t0 = 1_700_000_000_000_000 // an arbitrary time, in microseconds

// everyLimit returns one limit for each kind of state.
func everyLimit() []headgate.Limit {
	return []headgate.Limit{
		headgate.PerMinute(10),
		headgate.PerSecond(7).WithBurst(20),
		headgate.PerMinute(10).WithAlgorithm(store.LeakyBucket),
		headgate.PerMinute(10).WithAlgorithm(store.FixedWindow),
		headgate.PerMinute(10).WithAlgorithm(store.FixedWindow).WithAnchor(store.AnchorFirstRequest),
		headgate.PerCalendar(10, store.Month, nil),
		headgate.PerCalendar(10, store.Minute, nil).WithZone(time.FixedZone("UTC+14", 14*60*60)),
		headgate.PerMinute(10).WithAlgorithm(store.SlidingWindow),
		headgate.Per(10, 40*24*time.Hour).WithAlgorithm(store.SlidingWindow),
		headgate.Per(1<<40, 7*time.Microsecond).WithAlgorithm(store.SlidingWindow),
		headgate.PerMinute(10).WithAlgorithm(store.SlidingLog),
		headgate.PerMinute(10).WithAlgorithm(store.SlidingLog).WithRefusalsCounted(),
		headgate.PerMinute(10).WithAlgorithm(store.SlidingBuckets).WithBuckets(6, store.EdgeWeighted),
	}
}

// TestAgreesWithStep compares a long random run with the steps on a map that never
// forgets.
func TestAgreesWithStep(t *testing.T) {
	s := New(WithMaxKeys(1 << 20))
	defer s.Close()
	type name struct {
		key string
		a   store.Algorithm
	}
	model := make(map[name]*algorithm.State)
	rng := rand.New(rand.NewPCG(1, 2))
	limits := everyLimit()
	now := int64(t0)
	for i := range 200_000 {
		now += rng.Int64N(100_000)
		which := rng.IntN(len(limits))
		limit := limits[which]
		op := store.Op{
			// A state is forgotten when it is fresh under its own limit.
			Key: fmt.Sprint("key", which, rng.IntN(300)), Rule: limit.Rule(), At: now,
			Kind: store.Kind(rng.IntN(int(store.KindReserve) + 1)), Cost: rng.Int64N(4),
			Duration: time.Duration(rng.IntN(20)) * time.Second,
		}
		if rng.IntN(3) > 0 {
			op.Kind = store.KindTake
		}
		if op.Kind == store.KindReset && rng.IntN(4) > 0 || op.Kind == store.KindGrant && rng.IntN(8) > 0 {
			continue
		}
		if rng.IntN(50) == 0 {
			op.Cost <<= rng.IntN(40) // debts that do not fit in a slot
		}
		n := name{op.Key, limit.Algorithm()}
		st := model[n]
		if st == nil {
			st = new(algorithm.State)
			model[n] = st
		}
		want := algorithm.Step(limit.Rule(), st, now, algorithm.RequestOf(&op)).Decision
		got, err := store.Execute(context.Background(), s, op)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Fatalf("op %d, %s of %d on %s:\n got %+v\nwant %+v", i, op.Kind, op.Cost, limit, got, want)
		}
		if i%10_000 == 0 {
			s.Sweep(time.UnixMicro(now))
			checkShards(t, s)
		}
	}
}

// checkShards fails if a table is out of order or a count is wrong.
func checkShards(t *testing.T, s *Store) {
	t.Helper()
	var keys, bytes int64
	for i := range s.shards {
		h := &s.shards[i]
		h.mu.Lock()
		count, used := 0, 0
		for j, p := range h.slots {
			if p.tag == 0 {
				continue
			}
			count++
			if p.codec() == codecRecord {
				used++
			}
			home := h.home(p.tag)
			if j < home {
				t.Fatalf("shard %d: slot %d lies before its home %d", i, j, home)
			}
			if j > home && h.slots[j-1].tag == 0 {
				t.Fatalf("shard %d: a gap before slot %d, whose home is %d", i, j, home)
			}
			if j > 0 && h.slots[j-1].tag > p.tag {
				t.Fatalf("shard %d: slot %d is out of order", i, j)
			}
			if int(p.c>>extraShift)&(len(s.shards)-1) != i {
				t.Fatalf("shard %d: slot %d belongs to another", i, j)
			}
		}
		if count != h.count {
			t.Fatalf("shard %d: counts %d slots, has %d", i, h.count, count)
		}
		for _, p := range h.waiting {
			if p.tag != 0 && p.codec() == codecRecord {
				used++
			}
		}
		checkRanking(t, h)
		var hint hint
		hint.set(&h.table)
		if is := &s.hints[i]; is.base.Load() != hint.base.Load() || is.span.Load() != hint.span.Load() {
			t.Fatalf("shard %d: the hint is of another table", i)
		}
		if have := checkLists(t, h); have != used {
			t.Fatalf("shard %d: %d blocks, want %d", i, have, used)
		}
		keys += int64(count)
		bytes += int64(len(h.slots)+cap(h.waiting))*slotBytes + int64(cap(h.ranking.items))*rankedBytes + int64(cap(h.lists.more))*pieceBytes
		for j := range h.lists.count() {
			bytes += 8 * int64(len(h.lists.piece(j).words))
		}
		if s.hints[i].hot.Load() != nil {
			bytes += hotBytes
		}
		h.mu.Unlock()
	}
	if have := s.keys.Load(); have != keys {
		t.Fatalf("counts %d keys, has %d", have, keys)
	}
	if have := s.bytes.Load(); have != bytes {
		t.Fatalf("counts %d bytes, has %d", have, bytes)
	}
}

// checkLists returns the number of blocks, which must not overlap, and must be all that
// the pieces hold.
func checkLists(t *testing.T, h *shard) (blocks int) {
	t.Helper()
	live, used := make([]int, h.lists.count()), make(map[*uint64]bool)
	for p := range h.listed() {
		at := place(p.a)
		b := h.lists.block(at)
		for i := range b {
			if used[&b[i]] {
				t.Fatalf("two blocks share word %d of piece %d", at.offset()+i, at.piece())
			}
			used[&b[i]] = true
		}
		live[at.piece()] += at.size()
		blocks++
	}
	dead := 0
	for i := range h.lists.count() {
		p := h.lists.piece(i)
		if int(p.used-p.dead) != live[i] || int(p.used) > len(p.words) {
			t.Fatalf("piece %d of %d words: %d used, %d dead, %d live", i, len(p.words), p.used, p.dead, live[i])
		}
		dead += int(p.dead)
	}
	if dead != int(h.lists.dead) {
		t.Fatalf("%d words dead, want %d", h.lists.dead, dead)
	}
	return blocks
}

// checkRanking fails if a slot that ranks below bound could be missed.
func checkRanking(t *testing.T, h *shard) {
	t.Helper()
	noted := make(map[uint64]int64)
	for _, item := range h.ranking.items {
		if rank, ok := noted[item.tag]; !ok || item.rank < rank {
			noted[item.tag] = item.rank
		}
	}
	for i := range h.slots {
		p := &h.slots[i]
		if p.tag == 0 || p.rank() >= h.ranking.bound {
			continue
		}
		if rank, ok := noted[p.tag]; !ok || rank > p.rank() {
			t.Fatalf("a slot of rank %d, below %d, is noted at %d (%t)", p.rank(), h.ranking.bound, rank, ok)
		}
	}
}

// TestConcurrent uses one key from many goroutines, while others add and evict keys.
func TestConcurrent(t *testing.T) {
	for _, limit := range everyLimit() {
		t.Run(limit.String(), func(t *testing.T) {
			if limit.N() > 10 {
				t.Skip("the limit is too large to reach")
			}
			s := New(WithMaxKeys(100_000))
			var allowed atomic.Int64
			var wg sync.WaitGroup
			for g := range 8 {
				wg.Go(func() {
					for i := range 300 {
						op := store.Op{Key: "one", Rule: limit.Rule(), Cost: 1, At: t0}
						d, err := store.Execute(t.Context(), s, op)
						if err != nil {
							t.Error(err)
						}
						if d.Allowed {
							allowed.Add(1)
						}
						op.Key = fmt.Sprint(g, i)
						var out [2]store.Decision
						if err := store.ExecuteAll(t.Context(), s, []store.Op{op, op}, out[:], store.AllOrNothing); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			if got := allowed.Load(); got != limit.Burst() {
				t.Errorf("allowed %d, want %d", got, limit.Burst())
			}
			checkShards(t, s)
		})
	}
}

func TestErrors(t *testing.T) {
	s := New()
	limit := headgate.PerMinute(5)
	good := store.Op{Key: "k", Rule: limit.Rule(), Cost: 1}
	for _, c := range []struct {
		op   store.Op
		want error
	}{
		{store.Op{Key: "k", Cost: 1}, store.ErrInvalidLimit},
		{store.Op{Key: "k", Rule: headgate.PerMinute(-1).Rule(), Cost: 1}, store.ErrInvalidLimit},
		{store.Op{Key: "k", Rule: limit.Rule(), Cost: -1}, store.ErrInvalidCost},
	} {
		if _, err := store.Execute(t.Context(), s, c.op); !errors.Is(err, c.want) {
			t.Errorf("Take: %v, want %v", err, c.want)
		}
		out := make([]store.Decision, 2)
		if err := store.ExecuteAll(t.Context(), s, []store.Op{good, c.op}, out, store.Independent); !errors.Is(err, c.want) {
			t.Errorf("Do: %v, want %v", err, c.want)
		}
	}
	if n := s.Stats().Keys; n != 0 {
		t.Errorf("%d keys written in spite of an error", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := store.Execute(t.Context(), s, good); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestDryRunsWriteNothing(t *testing.T) {
	s := New()
	for _, limit := range everyLimit() {
		for _, op := range []store.Op{
			{Kind: store.KindPeek, Cost: 3},
			{Kind: store.KindTake},
			{Kind: store.KindCharge},
			{Kind: store.KindGrant},
			{Kind: store.KindRefund, Cost: 3},
			{Kind: store.KindReset},
		} {
			op.Key, op.Rule, op.At = "k", limit.Rule(), t0
			if _, err := store.Execute(t.Context(), s, op); err != nil {
				t.Fatal(err)
			}
			if n := s.Stats().Keys; n != 0 {
				t.Fatalf("%s of %d under %s left %d keys", op.Kind, op.Cost, limit, n)
			}
		}
	}
}

// TestNoAllocation covers every kind of slot, and batches.
func TestNoAllocation(t *testing.T) {
	ctx := t.Context()
	s := New()
	limiter := headgate.New(s)
	for _, limit := range everyLimit() {
		if limit.Algorithm() == store.SlidingLog || limit.N() > 10 {
			continue
		}
		n := testing.AllocsPerRun(1000, func() {
			if _, err := limiter.AllowN(ctx, "user:12345678", limit, 1); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", limit, n)
		}
	}
	ops := slices.Repeat([]store.Op{{Key: "a", Rule: headgate.PerSecond(1000).Rule(), Cost: 1}}, 4)
	out := make([]store.Decision, len(ops))
	for _, mode := range []store.Mode{store.Independent, store.AllOrNothing} {
		n := testing.AllocsPerRun(1000, func() {
			if err := store.ExecuteAll(ctx, s, ops, out, mode); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("mode %d: %v allocations", mode, n)
		}
	}
}

// TestTimesOutOfRange: no time makes a store forget usage recorded at it.
func TestTimesOutOfRange(t *testing.T) {
	for _, limit := range everyLimit() {
		if limit.N() > 10 {
			continue
		}
		for _, now := range []int64{-1 << 62, -1, 1, 1 << 52, 1 << 53, 1<<63 - 1} {
			s := New()
			op := store.Op{Key: "k", Rule: limit.Rule(), Cost: limit.Burst(), At: now}
			var out [1]store.Decision
			if err := store.ExecuteAll(t.Context(), s, []store.Op{op}, out[:], store.AllOrNothing); err != nil || !out[0].Allowed {
				t.Fatalf("%s at %d: %+v, %v", limit, now, out[0], err)
			}
			op.Cost = 1
			if d, err := store.Execute(t.Context(), s, op); err != nil || d.Allowed {
				t.Errorf("%s at %d: allowed again", limit, now)
			}
			checkShards(t, s)
		}
	}
}

// A request that finds its key reads one cache line of the shard, and one more for its
// list. Neighbours share none.
func TestShardIsOneLine(t *testing.T) {
	if strconv.IntSize != 64 {
		t.Skip("for machines with 64 bits")
	}
	if size := unsafe.Sizeof(shard{}); size != 64 {
		t.Errorf("%d bytes", size)
	}
	if size := unsafe.Sizeof(lists{}); size != 64 {
		t.Errorf("lists: %d bytes", size)
	}
	if size := unsafe.Sizeof(rest{}); size%64 != 0 {
		t.Errorf("rest: %d bytes", size)
	}
}

func TestShards(t *testing.T) {
	for _, tt := range []struct {
		maxKeys, maxBytes int64
		want              int
	}{
		{1, DefaultMaxBytes, 1},
		{8192, DefaultMaxBytes, 1},
		{8193, DefaultMaxBytes, 512},
		{65_536, DefaultMaxBytes, 2048},
		{65_537, DefaultMaxBytes, 4096},
		{1_000_000, DefaultMaxBytes, 4096},
		{2 << 20, DefaultMaxBytes, 4096},
		{2<<20 + 1, DefaultMaxBytes, 4096},
		{4<<20 + 1, DefaultMaxBytes, 8192},
		{1 << 40, 1 << 50, maxShards},
		{1_000_000, 1 << 20, 64},
		{1_000_000, 1, 1},
		{1_000_000, 0, 4096}, // the default
	} {
		o := settings{maxKeys: tt.maxKeys, maxBytes: tt.maxBytes}
		if got := o.shards(); got != tt.want {
			t.Errorf("%d keys, %d bytes: %d shards, want %d", tt.maxKeys, tt.maxBytes, got, tt.want)
		}
	}
}
