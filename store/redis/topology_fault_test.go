package redis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// scene is traffic under all three policies with faults in between.
type scene struct {
	t       *testing.T
	crowds  []*crowd
	options redis.Options
	store   store.Store
	machine lag
	log     *changes
	stop    func()
	group   sync.WaitGroup

	// total is the sum of the answers to each crowd.
	total []tally
}

// prepare opens the store of a scene.
func prepare(t *testing.T, o redis.Options) *scene {
	t.Helper()
	s := &scene{t: t, options: o, log: new(changes)}
	s.store = openFailsafe(t, o, s.log.add)
	return s
}

// begin starts the traffic and returns once it flows.
func (s *scene) begin(crowds ...*crowd) {
	t := s.t
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	s.crowds, s.stop = crowds, stop
	t.Cleanup(s.end)
	s.machine.run(ctx, &s.group)
	for range crowds {
		s.total = append(s.total, newTally())
	}
	for _, c := range crowds {
		c.run(ctx, &s.group)
	}
	wait(150 * time.Millisecond)
	recovered(t, crowds...)
}

func (s *scene) end() {
	s.stop()
	s.group.Wait()
}

// look returns what happened since the last look.
func (s *scene) look() []tally {
	var seen []tally
	for i, c := range s.crowds {
		now := c.seen()
		seen = append(seen, now)
		for reason, n := range now.allowed {
			s.total[i].allowed[reason] += n
		}
		s.total[i].errs += now.errs
		s.total[i].earlier += now.earlier
		s.total[i].slowest = max(s.total[i].slowest, now.slowest)
	}
	return seen
}

// finish stops the traffic when everything has recovered, takes what is left, and
// checks that the store admitted at most the limit plus forgotten, and at least the
// limit minus the failed calls.
func (s *scene) finish(forgotten int) {
	t := s.t
	t.Helper()
	took := recovered(t, s.crowds...)
	s.end()
	s.look()
	for i, c := range s.crowds {
		limit := int(c.limit.N()) * len(c.keys)
		total := s.total[i]
		admitted := total.allowed[store.ReasonOK] + total.earlier + c.drain(s.options)
		if admitted > limit+forgotten || admitted < limit-total.errs {
			t.Errorf("%s: the store admitted %d of %d, %d may have been forgotten, %d calls failed",
				c.name, admitted, limit, forgotten, total.errs)
		}
		if share := int(headgate.LimitOf(c.limit.Rule().Share(0.05)).N()) * len(c.keys); total.allowed[store.ReasonFallback] > share {
			t.Errorf("%s: memory admitted %d, its share is %d", c.name, total.allowed[store.ReasonFallback], share)
		}
		if total.slowest > s.machine.latest() {
			t.Errorf("%s: somebody waited %s; the machine was %s late", c.name, total.slowest, s.machine.late())
		}
		t.Logf("%s: the store admitted %d of %d; %s", c.name, admitted, limit, total)
	}
	s.log.check(t, s.store)
	t.Logf("well %s after the end, machine %s late", took, s.machine.late())
}

// TestSentinelFailover kills the primary during traffic. Anything it had not yet sent
// to the replicas is lost: replication is asynchronous.
func TestSentinelFailover(t *testing.T) {
	set := redistest.Sentinel(t)
	s := prepare(t, redis.Options{Addresses: set.Addrs(), Mode: redis.Sentinel, MasterName: redistest.MasterName})
	allow, deny, local := policies(t, s.store, named("sentinel"))
	s.begin(allow, deny, local)
	s.look()
	set.KillPrimary()
	killed := time.Now()
	set.AwaitFailover()
	t.Logf("failover took %s", time.Since(killed))
	for i, during := range s.look() {
		if during.errs == 0 {
			t.Errorf("%s: no call failed", s.crowds[i].name)
		}
	}
	// 12 callers, each of which may have been answered just before the end.
	s.finish(12)
}

// TestClusterLosesAPrimary kills one of three primaries during traffic. Keys on the
// others are answered throughout.
func TestClusterLosesAPrimary(t *testing.T) {
	set := redistest.Cluster(t, "--cluster-require-full-coverage", "no")
	s := prepare(t, redis.Options{Addresses: set.Addrs(), Mode: redis.Cluster})
	allow, deny, local := policies(t, s.store, onPrimary(0))
	_, others, _ := policies(t, s.store, onPrimary(1))
	others.name = "others"
	s.begin(allow, deny, local, others)
	set.KillPrimary(0)
	killed := time.Now()
	s.look()
	wait(500 * time.Millisecond) // the cluster takes a second to notice
	for i, during := range s.look() {
		c := s.crowds[i]
		switch {
		case c == others && during.allowed[store.ReasonOK] < 9*during.errs && !s.machine.busy():
			t.Errorf("keys of other primaries: %s", during)
		case c != others && during.allowed[store.ReasonOK] > during.errs:
			t.Errorf("keys of the dead primary: %s", during)
		}
		t.Logf("%s, during: %s", c.name, during)
	}
	set.AwaitFailover(0)
	t.Logf("failover took %s", time.Since(killed))
	s.finish(12)
}

// onPrimary returns keys on one of the first primaries.
func onPrimary(primary int) func(name string) []string {
	return func(name string) []string {
		var keys []string
		for i := 0; len(keys) < 2; i++ {
			key := fmt.Sprintf("%s %d", name, i)
			if int(redis.SlotOf(key))*3/redistest.Slots == primary {
				keys = append(keys, key)
			}
		}
		return keys
	}
}

// TestClusterMovesASlot moves the slot of a busy key from one primary to another and
// back, key by key, while its callers continue. Nothing is lost.
func TestClusterMovesASlot(t *testing.T) {
	set := redistest.Cluster(t)
	s := prepare(t, redis.Options{Addresses: set.Addrs(), Mode: redis.Cluster})
	allow, deny, local := policies(t, s.store, named("moved"))
	s.begin(allow, deny, local)
	for range 3 {
		for _, c := range s.crowds {
			slot := int(redis.SlotOf(c.keys[0]))
			owner := ownerOf(t, set, slot)
			from, to := set.Primaries[owner], set.Primaries[(owner+1)%3]
			set.MoveSlot(slot, from, to, func() { wait(50 * time.Millisecond) })
		}
		wait(50 * time.Millisecond)
	}
	for i, during := range s.look() {
		if during.errs*10 > during.allowed[store.ReasonOK] && !s.machine.busy() {
			t.Errorf("%s: too much failed: %s", s.crowds[i].name, during)
		}
	}
	s.finish(0)
}

// ownerOf returns which of the first primaries currently owns a slot.
func ownerOf(t *testing.T, set *redistest.ClusterSet, slot int) int {
	t.Helper()
	for i, p := range set.Primaries {
		count, err := p.Command("CLUSTER", "COUNTKEYSINSLOT", fmt.Sprint(slot))
		if n, ok := count.(int64); err == nil && ok && n > 0 {
			return i
		}
	}
	t.Fatalf("no primary has a key in slot %d", slot)
	return 0
}

// TestClusterAcrossSlots makes all-or-nothing requests for keys on three primaries
// while one of them stalls: no call waits longer than the deadline, although undoing
// takes a second round trip.
func TestClusterAcrossSlots(t *testing.T) {
	set := redistest.Cluster(t)
	options := redis.Options{Addresses: set.Addrs(), Mode: redis.Cluster}
	db := openFailsafe(t, options, nil)
	limiter := headgate.New(db, headgate.WithFailurePolicy(headgate.FailClosed))
	limit := headgate.Per(300, never)
	var ops []store.Op
	for i := range set.Primaries {
		ops = append(ops, store.Op{Key: onPrimary(i)("all")[0], Rule: limit.Rule(), Cost: 1})
	}
	var mu sync.Mutex
	var took []time.Duration
	admitted, failed := 0, 0
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var machine lag
	machine.run(ctx, &group)
	for range 6 {
		group.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				<-tick.C
				out := make([]store.Decision, len(ops))
				begin := time.Now()
				d, err := limiter.Caller().AllowAll(context.Background(), slices.Clone(ops), out)
				mu.Lock()
				took = append(took, time.Since(begin))
				switch {
				case err != nil && !errors.Is(err, store.ErrUnavailable):
					t.Error(err)
				case err != nil:
					failed++
				case d.Allowed:
					admitted++
				}
				mu.Unlock()
			}
		})
	}
	until := func(what string, n *int) {
		mu.Lock()
		defer mu.Unlock()
		for began, least := time.Now(), *n+1; *n < least && time.Since(began) < comeback; mu.Lock() {
			mu.Unlock()
			wait(time.Millisecond)
		}
		t.Logf("%s: %d", what, *n)
	}
	until("admitted", &admitted)
	wait(150 * time.Millisecond)
	set.Primaries[1].Pause()
	wait(400 * time.Millisecond)
	until("failed", &failed)
	set.Primaries[1].Resume()
	wait(300 * time.Millisecond)
	stop()
	group.Wait()
	for _, op := range ops {
		used := int(limit.N()) - drain(t, options, op.Key, limit)
		// A failed call may have taken in some slots without being undone.
		if used < admitted || used > admitted+failed {
			t.Errorf("%s: %d used, %d admitted, %d calls failed", op.Key, used, admitted, failed)
		}
	}
	if admitted == 0 || failed == 0 {
		t.Errorf("admitted %d, failed %d", admitted, failed)
	}
	if slowest := slices.Max(took); slowest > machine.latest() {
		t.Errorf("somebody waited %s; the machine was %s late", slowest, machine.late())
	}
	t.Logf("admitted %d, failed %d, slowest %s, machine %s late", admitted, failed, slices.Max(took), machine.late())
}
