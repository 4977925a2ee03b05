package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/storetest"
)

// TestCluster runs all cluster tests on one cluster: starting it takes seconds.
func TestCluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts six servers")
	}
	set := redistest.Cluster(t)
	options := redis.Options{Addresses: set.Addrs()[:2], Mode: redis.Cluster, Timeout: patient}
	t.Run("Slots", func(t *testing.T) { clusterSlots(t, set) })
	t.Run("T36_EveryScriptInOneSlot", func(t *testing.T) { everyScriptInOneSlot(t, open(t, options)) })
	t.Run("KeyTimes", func(t *testing.T) {
		timed := options
		timed.KeyTimes = true
		everyScriptInOneSlot(t, open(t, timed))
		timesAcrossSlots(t, open(t, timed))
	})
	t.Run("AcrossSlots", func(t *testing.T) { acrossSlots(t, open(t, options)) })
	t.Run("AcrossSlotsNeverTooMuch", func(t *testing.T) { neverTooMuch(t, open(t, options)) })
	t.Run("AcrossSlotsKeepsValues", func(t *testing.T) { acrossSlotsKeepsValues(t, open(t, options)) })
	t.Run("AcrossSlotsFillsNoQueue", func(t *testing.T) { acrossSlotsFillsNoQueue(t, open(t, options)) })
	t.Run("AcrossSlotsCountsNoOthersRefusals", func(t *testing.T) { acrossSlotsCountsNoOthersRefusals(t, open(t, options)) })
	t.Run("AcrossSlotsRacesForQueues", func(t *testing.T) { acrossSlotsRacesForQueues(t, open(t, options)) })
	t.Run("Strict", func(t *testing.T) {
		strict := options
		strict.StrictAtomic = true
		strictAtomic(t, open(t, strict))
	})
	t.Run("ScriptsLost", func(t *testing.T) { scriptsLost(t, set, open(t, options)) })
	t.Run("Pipeline", func(t *testing.T) { saysWhatDoSays(t, options, set.Primaries, false) })
	t.Run("PipelineAcrossSlots", func(t *testing.T) { pipelineAcrossSlots(t, set, open(t, options)) })
	t.Run("Leases", func(t *testing.T) { clusterLeases(t, set, open(t, options)) })
	t.Run("Resharding", func(t *testing.T) { resharding(t, set, open(t, options)) })
	t.Run("Conformance", func(t *testing.T) {
		storetest.Run(t, storetest.Harness{Open: func(t *testing.T) store.Store {
			for _, p := range set.Primaries {
				p.Do("FLUSHALL")
			}
			o := options
			o.CallerTime = true
			return oneEntity{open(t, o)}
		}})
	})
	t.Run("PipelineOfPart", func(t *testing.T) { pipelineOfPart(t, set, options) }) // last: a primary is stopped
}

// oneEntity moves the key into the scope, so that everything is in one slot: across
// slots, all or nothing does not give exactly the same fields.
type oneEntity struct{ *redis.Store }

func (e oneEntity) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		var all []store.Op
		for _, op := range ops {
			all = append(all, moved(op))
		}
		return store.ExecuteAll(ctx, e.Store, all, out, mode)
	})
}

func moved(op store.Op) store.Op {
	space, _ := op.Space()
	if space == "" {
		space = string(op.AppendSpace(nil))
	}
	op.Key, op.Scope = "entity", string(headgate.AppendKey(nil, op.Key, space))
	return op
}

// clusterSlots compares our slots with the server's.
func clusterSlots(t *testing.T, set *redistest.ClusterSet) {
	for _, key := range []string{"", "a", "user:1", "{", "}", "a}b", "{a}b", "\x00", "%", string(make([]byte, 500))} {
		for _, scope := range []string{"", "api", "}"} {
			op := store.Op{Key: key, Scope: scope, Rule: headgate.PerSecond(1).Rule()}
			if got, want := int(redis.SlotOf(key)), set.Slot(redis.KeyOf("hg", &op)); got != want {
				t.Errorf("key %q in scope %q: slot %d, the server says %d", key, scope, got, want)
			}
		}
	}
}

// everyScriptInOneSlot: no script uses keys of another slot.
func everyScriptInOneSlot(t *testing.T, db *redis.Store) {
	limits := eachLimit(5, time.Hour)
	for _, kind := range []store.Kind{
		store.KindTake, store.KindTakeUpTo, store.KindPeek, store.KindCharge, store.KindRefund, store.KindGrant, store.KindReserve, store.KindReset,
	} {
		for i := range 20 {
			var ops []store.Op
			for j, limit := range limits {
				op := store.Op{Key: strconv.Itoa(i), Scope: strconv.Itoa(j), Rule: limit.Rule(), Cost: 1, Kind: kind, Duration: time.Second}
				take(t, db, op)
				ops = append(ops, op)
			}
			out := make([]store.Decision, len(ops))
			for _, mode := range []store.Mode{store.Independent, store.AllOrNothing} {
				if err := store.ExecuteAll(context.Background(), db, ops, out, mode); err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
			}
		}
	}
}

// acrossSlots: if one of many slots refuses, nothing stays taken.
func acrossSlots(t *testing.T, db *redis.Store) {
	ctx := context.Background()
	for i, limit := range eachLimit(5, time.Hour) {
		var ops []store.Op
		for key := range 12 {
			ops = append(ops, store.Op{Key: fmt.Sprint("across", key), Scope: strconv.Itoa(i), Rule: limit.Rule(), Cost: 2})
		}
		out := make([]store.Decision, len(ops))
		if err := store.ExecuteAll(ctx, db, ops, out, store.AllOrNothing); err != nil {
			t.Fatal(err)
		}
		for j, d := range out {
			if !d.Allowed || d.Granted != 2 || d.Remaining != 3 {
				t.Fatalf("%s: op %d: %+v", limit, j, d)
			}
		}
		ops[7].Cost = 4
		if err := store.ExecuteAll(ctx, db, ops, out, store.AllOrNothing); err != nil {
			t.Fatal(err)
		}
		for j, d := range out {
			if d.Allowed != (j != 7) || d.Granted != 0 {
				t.Errorf("%s: op %d after a refusal: %+v", limit, j, d)
			}
			if j == 7 && limit.Rule().CountRefused {
				continue
			}
			peek := ops[j]
			peek.Kind = store.KindPeek
			// A refund may return too little, by what has drained until then.
			if left := take(t, db, peek).Remaining; left > 3 && limit.Algorithm() > store.LeakyBucket || left < 2 {
				t.Errorf("%s: op %d has %d left, want 3", limit, j, left)
			}
		}
	}
}

// acrossSlotsKeepsValues: a value that a refused request has shown stays: another request has
// passed with it at no cost, so without it more values would pass than the limit.
func acrossSlotsKeepsValues(t *testing.T, db *redis.Store) {
	shown := store.Op{Key: "values", Rule: headgate.PerDay(3).WithAlgorithm(store.Distinct).Rule(), Cost: 1}
	refuses := store.Op{Key: "none left", Rule: headgate.PerDay(0).Rule(), Cost: 1}
	admitted := 0
	for member := range uint64(9) {
		shown.Member = 1 + member
		b := store.Batch{
			Ops: []store.Op{shown, refuses, shown}, Out: make([]store.Decision, 3),
			Groups: []store.Group{{Ops: 2, Mode: store.AllOrNothing}, {Ops: 1, Mode: store.AllOrNothing}},
		}
		db.Do(t.Context(), &b)
		if b.Groups[0].Err != nil || b.Groups[1].Err != nil || b.Out[1].Allowed || b.Out[0].Granted != 0 {
			t.Fatalf("%+v, %+v", b.Groups, b.Out)
		}
		if b.Out[2].Allowed {
			admitted++
		}
	}
	if admitted != 3 {
		t.Errorf("%d values were admitted, want 3", admitted)
	}
}

// acrossSlotsFillsNoQueue: requests that another slot refuses leave a queue as it was,
// whatever comes together: a place in the middle could not be given back.
func acrossSlotsFillsNoQueue(t *testing.T, db *redis.Store) {
	none := store.Op{Key: "none left", Rule: headgate.PerDay(0).Rule(), Cost: 1}
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 4))
		line := store.Op{Key: fmt.Sprint("line", seed), Rule: headgate.PerHour(100).WithAlgorithm(store.LeakyBucket).Rule()}
		window := store.Op{Key: []string{line.Key, "window"}[seed%2], Rule: headgate.PerDay(9).WithAlgorithm(store.FixedWindow).Rule(), Cost: 1}
		var wait sync.WaitGroup
		for range 1 + seed%4 {
			b := new(store.Batch)
			for range 1 + r.IntN(20) {
				line.Cost = 1 + r.Int64N(3)
				ops := []store.Op{line, window, none}
				r.Shuffle(3, func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
				b.Ops, b.Groups = append(b.Ops, ops...), append(b.Groups, store.Group{Ops: 3, Mode: store.AllOrNothing})
			}
			b.Out = make([]store.Decision, len(b.Ops))
			wait.Go(func() {
				for range 3 {
					if db.Do(t.Context(), b); b.Err() != nil {
						t.Error(b.Err())
					}
				}
			})
		}
		wait.Wait()
		line.Cost = 1
		if d, err := store.Execute(t.Context(), db, line); err != nil || d.Delay != 0 || d.Remaining != 99 {
			t.Errorf("seed %d: the next one: %+v, %v", seed, d, err)
		}
	}
}

// acrossSlotsCountsNoOthersRefusals: requests that only another slot refuses do not count as
// refused, whatever comes together; those that the limit refuses itself do.
func acrossSlotsCountsNoOthersRefusals(t *testing.T, db *redis.Store) {
	none := store.Op{Key: "none left", Rule: headgate.PerDay(0).Rule(), Cost: 1}
	free := store.Op{Key: "many left", Rule: headgate.PerDay(1_000_000).Rule(), Cost: 1}
	for _, algorithm := range []headgate.Algorithm{store.FixedWindow, store.SlidingLog, store.SlidingWindow, store.SlidingBuckets} {
		counting := store.Op{Key: "counting", Rule: headgate.PerDay(8).WithAlgorithm(algorithm).WithRefusalsCounted().Rule(), Cost: 1}
		together := func(other store.Op) (admitted int64) {
			var all atomic.Int64
			var wait sync.WaitGroup
			for range 4 {
				b := new(store.Batch)
				for range 20 {
					b.Ops, b.Groups = append(b.Ops, counting, other), append(b.Groups, store.Group{Ops: 2, Mode: store.AllOrNothing})
				}
				b.Out = make([]store.Decision, len(b.Ops))
				wait.Go(func() {
					for range 3 {
						if db.Do(t.Context(), b); b.Err() != nil {
							t.Error(b.Err())
						}
						for i := 0; i < len(b.Out); i += 2 {
							all.Add(b.Out[i].Granted)
						}
					}
				})
			}
			wait.Wait()
			return all.Load()
		}
		refused := together(none)
		if d := take(t, db, store.Op{Key: counting.Key, Rule: counting.Rule, Cost: 8, Kind: store.KindPeek}); refused != 0 || !d.Allowed {
			t.Errorf("%s: %d admitted; then %+v", algorithm, refused, d)
		}
		if n := together(free); n != 8 {
			t.Errorf("%s: %d admitted, want 8", algorithm, n)
		}
		// Without its 232 refusals it would soon be free again: in a sliding window, 1 at once
		// in the next day.
		if d := take(t, db, store.Op{Key: counting.Key, Rule: counting.Rule, Cost: 1, Kind: store.KindPeek}); d.Allowed || algorithm == store.SlidingWindow && d.RetryAfter < 24*time.Hour {
			t.Errorf("%s: its own refusals: %+v", algorithm, d)
		}
	}
}

// acrossSlotsRacesForQueues: requests that race for the last places of a small queue leave
// no places in a large one that nobody uses.
func acrossSlotsRacesForQueues(t *testing.T, db *redis.Store) {
	const callers, places = 8, 5
	hourly := headgate.PerHour(1000).WithAlgorithm(store.LeakyBucket)
	wide := store.Op{Key: "wide", Rule: hourly.Rule(), Cost: 1}
	narrow := store.Op{Key: "narrow", Rule: hourly.WithBurst(places).Rule(), Cost: 1}
	var wait sync.WaitGroup
	var admitted atomic.Int64
	for range callers {
		wait.Go(func() {
			out := make([]store.Decision, 2)
			for range 40 {
				if err := store.ExecuteAll(t.Context(), db, []store.Op{wide, narrow}, out, store.AllOrNothing); err != nil {
					t.Error(err)
				}
				if out[0].Allowed && out[1].Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	wait.Wait()
	wide.Kind = store.KindPeek
	d, err := store.Execute(t.Context(), db, wide)
	if used := 1000 - d.Remaining; err != nil || used != admitted.Load() {
		t.Errorf("%d places are used by %d requests: %v", used, admitted.Load(), err)
	}
}

// neverTooMuch: many concurrent all-or-nothing takes on keys in many slots, most of
// them refused, admit at most the limit of each.
func neverTooMuch(t *testing.T, db *redis.Store) {
	const limit, callers, keys = 40, 16, 4
	for _, l := range eachLimit(limit, 24*time.Hour) {
		var admitted [keys]atomic.Int64
		var group sync.WaitGroup
		for caller := range callers {
			group.Go(func() {
				for i := range 25 {
					var ops []store.Op
					for k := range keys {
						cost := int64(1)
						if (caller+i)%3 == 0 && k == keys-1 {
							cost = limit // refused, mostly after the others have taken
						}
						ops = append(ops, store.Op{Key: fmt.Sprint("much", k), Scope: l.String(), Rule: l.Rule(), Cost: cost})
					}
					out := make([]store.Decision, keys)
					if err := store.ExecuteAll(context.Background(), db, ops, out, store.AllOrNothing); err != nil {
						t.Error(err)
					}
					for k, d := range out {
						admitted[k].Add(d.Granted)
					}
				}
			})
		}
		group.Wait()
		for k := range admitted {
			if got := admitted[k].Load(); got > limit || got == 0 {
				t.Errorf("%s: key %d admitted %d of %d", l, k, got, limit)
			}
		}
	}
}

func strictAtomic(t *testing.T, db *redis.Store) {
	limit := headgate.PerHour(3)
	ops := []store.Op{
		{Key: "strict 1", Rule: limit.Rule(), Cost: 1},
		{Key: "strict 2", Rule: limit.Rule(), Cost: 1},
	}
	out := make([]store.Decision, 2)
	if err := store.ExecuteAll(context.Background(), db, ops, out, store.AllOrNothing); !errors.Is(err, store.ErrCrossSlot) {
		t.Errorf("error %v, want ErrCrossSlot", err)
	}
	if err := store.ExecuteAll(context.Background(), db, ops, out, store.Independent); err != nil {
		t.Error(err)
	}
	ops[1].Key, ops[1].Scope = ops[0].Key, "another"
	if err := store.ExecuteAll(context.Background(), db, ops, out, store.AllOrNothing); err != nil {
		t.Errorf("one entity in two scopes: %v", err)
	}
	if out[0].Remaining != 1 || out[1].Remaining != 2 {
		t.Errorf("remaining %d and %d, want 1 and 2", out[0].Remaining, out[1].Remaining)
	}
}

// scriptsLost: each node learns the scripts separately.
func scriptsLost(t *testing.T, set *redistest.ClusterSet, db *redis.Store) {
	set.Primaries[1].Do("SCRIPT", "FLUSH")
	var ops []store.Op
	for i := range 60 {
		ops = append(ops, store.Op{Key: fmt.Sprint("lost", i), Rule: headgate.PerHour(5).Rule(), Cost: 1})
	}
	out := make([]store.Decision, len(ops))
	if err := store.ExecuteAll(context.Background(), db, ops, out, store.Independent); err != nil {
		t.Fatal(err)
	}
	for i, d := range out {
		if d.Remaining != 4 {
			t.Errorf("op %d: remaining %d, want 4", i, d.Remaining)
		}
	}
}

// resharding: a slot that moves while its keys are in use loses no count.
func resharding(t *testing.T, set *redistest.ClusterSet, db *redis.Store) {
	const limit = 300
	op := store.Op{Key: "moving", Rule: headgate.Per(limit, 24*time.Hour).WithAlgorithm(store.FixedWindow).Rule(), Cost: 1}
	slot := int(redis.SlotOf(op.Key))
	owner := slot * len(set.Primaries) / redistest.Slots
	from, to := set.Primaries[owner], set.Primaries[(owner+1)%len(set.Primaries)]
	admitted := int64(0)
	ask := func(n int) {
		for range n {
			admitted += take(t, db, op).Granted
		}
	}
	ask(100)
	set.MoveSlot(slot, from, to, func() { ask(100) })
	ask(200)
	if admitted != limit {
		t.Errorf("admitted %d, want %d", admitted, limit)
	}
	set.MoveSlot(slot, to, from, nil)
}
