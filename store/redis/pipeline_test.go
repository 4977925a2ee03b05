package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// TestPipelineIsManyDos: groups are answered in order, each all or nothing, and an
// error affects only its own group, even when the server has forgotten the scripts.
func TestPipelineIsManyDos(t *testing.T) {
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
		three := headgate.Per(3, time.Hour).WithAlgorithm(store.FixedWindow)
		one := func(key string) store.Op { return store.Op{Key: key, Scope: "s", Rule: three.Rule(), Cost: 1} }
		for _, forget := range []func(){func() {}, func() { server.Do("SCRIPT", "FLUSH") }} {
			server.Do("FLUSHALL")
			forget()
			bad := one("bad")
			server.Do("LPUSH", redis.KeyOf("hg", &bad), "x")
			wrong := one("wrong")
			wrong.Cost = -1
			free := one("free")
			free.Rule = headgate.Unlimited().Rule()
			var q questions
			for range 5 {
				q.add(store.AllOrNothing, one("a"), one("b"))
			}
			q.add(store.AllOrNothing, one("b")) // the refused groups took none of it
			q.add(store.AllOrNothing, bad)
			q.add(store.AllOrNothing, wrong)
			q.add(store.AllOrNothing, free)
			q.add(store.Independent, one("c"))
			out := make([]store.Decision, len(q.ops))
			db.Do(t.Context(), &store.Batch{Ops: q.ops, Out: out, Groups: q.groups})
			got := ""
			for i := range out {
				got += fmt.Sprintf("%t%d ", out[i].Allowed, out[i].Remaining)
			}
			want := "true2 true2 true1 true1 true0 true0 false0 false0 false0 false0 false0 false0 false0 true" +
				fmt.Sprint(store.MaxLimit) + " true2 "
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			for i, g := range q.groups {
				is := map[int]error{6: store.ErrRefused, 7: store.ErrInvalidCost}[i]
				if !errors.Is(g.Err, is) {
					t.Errorf("group %d: %v", i, g.Err)
				}
			}
		}
	})
}

// questions are the requests of a Pipeline.
type questions struct {
	ops    []store.Op
	groups []store.Group
}

func (q *questions) add(mode store.Mode, ops ...store.Op) {
	q.ops = append(q.ops, ops...)
	q.groups = append(q.groups, store.Group{Ops: len(ops), Mode: mode})
}

// each calls f for each group.
func (q *questions) each(f func(g *store.Group, ops []store.Op)) {
	from := 0
	for i := range q.groups {
		g := &q.groups[i]
		f(g, q.ops[from:from+g.Ops])
		from += g.Ops
	}
}

// random makes n groups about a few keys, under every algorithm, at times that
// sometimes advance. Unless together is set, a group has one key, with several limits.
func random(r *rand.Rand, n int, together bool) *questions {
	limits := []headgate.Limit{
		headgate.Per(5, time.Minute),
		headgate.Per(4, time.Minute).WithAlgorithm(store.FixedWindow),
		headgate.Per(6, time.Minute).WithAlgorithm(store.SlidingLog),
		headgate.Per(7, time.Minute).WithAlgorithm(store.SlidingWindow),
		headgate.Per(5, time.Minute).WithAlgorithm(store.SlidingBuckets),
		headgate.Per(5, time.Minute).WithAlgorithm(store.LeakyBucket),
		headgate.Concurrent(3),
		headgate.Unlimited(),
	}
	q, at := new(questions), time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC).UnixMicro()
	for range n {
		if r.IntN(20) == 0 {
			at += r.Int64N(int64(30*time.Second) / 1000)
		}
		key := fmt.Sprint("key", r.IntN(4))
		var ops []store.Op
		for range 1 + r.IntN(3) {
			if together {
				key = fmt.Sprint("key", r.IntN(4))
			}
			i := r.IntN(len(limits))
			ops = append(ops, store.Op{
				Key: key, Scope: fmt.Sprint("limit", i), Rule: limits[i].Rule(), Cost: 1 + r.Int64N(2), At: at,
				Kind: []store.Kind{store.KindTake, store.KindTake, store.KindTake, store.KindPeek}[r.IntN(4)],
			})
		}
		q.add([]store.Mode{store.AllOrNothing, store.AllOrNothing, store.Independent}[r.IntN(3)], ops...)
	}
	return q
}

// sameAsDo sends everything to one store together and to another one by one; both must
// give the same answers.
func sameAsDo(t *testing.T, together, single *redis.Store, q *questions) {
	t.Helper()
	out := make([]store.Decision, len(q.ops))
	together.Do(t.Context(), &store.Batch{Ops: q.ops, Out: out, Groups: q.groups})
	from := 0
	q.each(func(g *store.Group, ops []store.Op) {
		want := make([]store.Decision, len(ops))
		err := store.ExecuteAll(t.Context(), single, ops, want, g.Mode)
		for i, op := range ops {
			got := out[from+i]
			if op.Rule.Algorithm == store.Concurrency {
				got.Lease, want[i].Lease = 0, 0
			}
			if got != want[i] || g.Err != nil || err != nil {
				t.Fatalf("op %d, %s of %d under %v:\n got %+v, %v\nwant %+v, %v", from+i, op.Kind, op.Cost, op.Rule, got, g.Err, want[i], err)
			}
		}
		from += len(ops)
	})
}

// TestPipelineSaysWhatDoSays: whatever is requested, the answers are those of single
// calls in order.
func TestPipelineSaysWhatDoSays(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		o := redis.Options{Addresses: []string{server.Addr}, Timeout: patient}
		saysWhatDoSays(t, o, []*redistest.Server{server}, true)
	})
}

// saysWhatDoSays compares stores whose servers know none or all of the scripts.
func saysWhatDoSays(t *testing.T, o redis.Options, servers []*redistest.Server, together bool) {
	o.CallerTime = true
	stores := map[string]*redis.Store{}
	for _, prefix := range []string{"at once", "one by one", "before"} {
		o.Prefix = prefix
		stores[prefix] = open(t, o)
	}
	for seed := range uint64(10) {
		for _, server := range servers {
			server.Do("FLUSHALL")
			server.Do("SCRIPT", "FLUSH")
		}
		if seed%2 == 0 {
			q := random(rand.New(rand.NewPCG(seed, 1)), 500, together)
			stores["before"].Do(t.Context(), &store.Batch{Ops: q.ops, Out: make([]store.Decision, len(q.ops)), Groups: q.groups})
		}
		sameAsDo(t, stores["at once"], stores["one by one"], random(rand.New(rand.NewPCG(seed, 2)), 100, together))
	}
}

// pipelineAcrossSlots: refused groups across slots do not affect groups after them. In
// the end each key has what the admitted groups have left, and no group that would fit
// was refused.
func pipelineAcrossSlots(t *testing.T, set *redistest.ClusterSet, db *redis.Store) {
	limit := headgate.Per(9, 24*time.Hour).WithAlgorithm(store.FixedWindow)
	op := func(key string, cost int64) store.Op {
		return store.Op{Key: key, Scope: "across", Rule: limit.Rule(), Cost: cost}
	}
	for seed := range uint64(8) {
		for _, p := range set.Primaries {
			p.Do("FLUSHALL")
		}
		r := rand.New(rand.NewPCG(seed, 3))
		q := new(questions)
		for range 60 {
			a := r.IntN(5)
			ops := []store.Op{op(fmt.Sprint("key", a), 1+r.Int64N(3))}
			if r.IntN(3) > 0 {
				ops = append(ops, op(fmt.Sprint("key", (a+1+r.IntN(4))%5), 1+r.Int64N(3)))
			}
			q.add(store.AllOrNothing, ops...)
		}
		out := make([]store.Decision, len(q.ops))
		db.Do(t.Context(), &store.Batch{Ops: q.ops, Out: out, Groups: q.groups})
		left := map[string]int64{}
		for i := range 5 {
			left[fmt.Sprint("key", i)] = 9
		}
		admitted := func(out []store.Decision) bool {
			for i := range out {
				if !out[i].Allowed {
					return false
				}
			}
			return true
		}
		from := 0
		q.each(func(g *store.Group, ops []store.Op) {
			if g.Err != nil {
				t.Fatal(g.Err)
			}
			if admitted(out[from : from+len(ops)]) {
				for _, op := range ops {
					left[op.Key] -= op.Cost
				}
			}
			from += len(ops)
		})
		for key, want := range left {
			peek := op(key, 1)
			peek.Kind = store.KindPeek
			if d, err := store.Execute(t.Context(), db, peek); err != nil || d.Remaining != want {
				t.Errorf("seed %d: %s has %d, want %d: %v", seed, key, d.Remaining, want, err)
			}
		}
		from = 0
		q.each(func(_ *store.Group, ops []store.Op) {
			fits := true
			for _, op := range ops {
				fits = fits && op.Cost <= left[op.Key]
			}
			if fits && !admitted(out[from:from+len(ops)]) {
				t.Errorf("seed %d: op %d was refused, and would fit: %+v", seed, from, out[from:from+len(ops)])
			}
			from += len(ops)
		})
	}
}

// pipelineOfPart: if one primary of a cluster does not answer, the groups of the others
// are still answered.
func pipelineOfPart(t *testing.T, set *redistest.ClusterSet, o redis.Options) {
	o.Timeout = 300 * time.Millisecond
	db := open(t, o)
	limit := headgate.Per(1000, time.Hour)
	q := new(questions)
	var away []bool
	for i := range 60 {
		key := fmt.Sprint("part", i)
		q.add(store.AllOrNothing, store.Op{Key: key, Scope: "s", Rule: limit.Rule(), Cost: 1})
		away = append(away, set.Slot("{"+key+"}") < 5461) // on the first primary
	}
	out := make([]store.Decision, len(q.ops))
	set.Primaries[0].Pause()
	defer set.Primaries[0].Resume()
	for round := range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), o.Timeout)
		db.Do(ctx, &store.Batch{Ops: q.ops, Out: out, Groups: q.groups})
		cancel()
		for i := range q.groups {
			if err := q.groups[i].Err; (err != nil) != away[i] || err != nil && !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("round %d, group %d, of the server that is away: %t: %v", round, i, away[i], err)
			}
		}
	}
}
