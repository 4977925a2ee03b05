package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// places returns an op on a limit of 3 requests in progress, whose leases outlive the
// test.
func places(key string) headgate.Op {
	return headgate.Op{Key: key, Scope: "places", Limit: headgate.Concurrent(3).Lease(time.Hour), Cost: 1}
}

// about returns an op about the lease of d.
func about(op headgate.Op, kind headgate.Kind, d headgate.Decision) headgate.Op {
	op.Kind, op.Lease = kind, d.Lease
	return op
}

// clusterLeases: in a cluster no lease is held if one of many slots refuses, and a
// lease moves with its slot to another node.
func clusterLeases(t *testing.T, set *redistest.ClusterSet, store *redis.Store) {
	t.Run("AcrossSlots", func(t *testing.T) { leasesAcrossSlots(t, store) })
	t.Run("Resharding", func(t *testing.T) {
		op := places("moving place")
		slot := int(redis.SlotOf(op.Key))
		owner := slot * len(set.Primaries) / redistest.Slots
		from, to := set.Primaries[owner], set.Primaries[(owner+1)%len(set.Primaries)]
		first, second := take(t, store, op), take(t, store, op)
		var renewed headgate.Decision
		set.MoveSlot(slot, from, to, func() { // clients meet ASK
			renewed = take(t, store, about(op, headgate.Renew, first))
			if d := take(t, store, about(op, headgate.Release, second)); d.Granted != 1 {
				t.Errorf("release while the slot moves: %+v", d)
			}
		})
		heldOnce(t, store, op, renewed, 2)
		set.MoveSlot(slot, to, from, nil)
	})
}

func leasesAcrossSlots(t *testing.T, store *redis.Store) {
	var ops []headgate.Op
	for i := range 12 {
		ops = append(ops, places(fmt.Sprint("across", i)))
	}
	full := ops[7]
	full.Cost = 3
	held := take(t, store, full)
	out := make([]headgate.Decision, len(ops))
	for range 2 {
		if err := headgate.ExecuteAll(context.Background(), store, ops, out, headgate.AllOrNothing); err != nil {
			t.Fatal(err)
		}
		for i, d := range out {
			peek := ops[i]
			peek.Kind = headgate.Peek
			left := take(t, store, peek).Remaining
			if d.Lease != 0 || d.Granted != 0 || d.Allowed != (i != 7) || i != 7 && left != 3 {
				t.Errorf("op %d of a refusal: %+v, %d left", i, d, left)
			}
		}
	}
	if d := take(t, store, about(full, headgate.Release, held)); d.Granted != 3 {
		t.Errorf("release of three: %+v", d)
	}
	if err := headgate.ExecuteAll(context.Background(), store, ops, out, headgate.AllOrNothing); err != nil {
		t.Fatal(err)
	}
	for i, d := range out {
		if d.Lease == 0 || d.Granted != 1 {
			t.Errorf("op %d: %+v", i, d)
		}
		if d := take(t, store, about(ops[i], headgate.Release, d)); d.Granted != 1 {
			t.Errorf("release of op %d: %+v", i, d)
		}
	}
}

// heldOnce: of the three slots of op, all but free are held, one of them by lease,
// which can be renewed, and released once.
func heldOnce(t *testing.T, store *redis.Store, op headgate.Op, lease headgate.Decision, free int64) {
	t.Helper()
	peek := op
	peek.Kind = headgate.Peek
	if d := take(t, store, peek); d.Remaining != free {
		t.Fatalf("%d places are free, want %d", d.Remaining, free)
	}
	for range free {
		if d := take(t, store, op); d.Lease == 0 {
			t.Errorf("a free place: %+v", d)
		}
	}
	if d := take(t, store, op); d.Allowed {
		t.Errorf("a fourth of three: %+v", d)
	}
	renewed := take(t, store, about(op, headgate.Renew, lease))
	if !renewed.Allowed {
		t.Errorf("renewal: %+v", renewed)
	}
	for i, want := range []int64{1, 0} {
		if d := take(t, store, about(op, headgate.Release, renewed)); d.Granted != want {
			t.Errorf("release number %d: %+v", i+1, d)
		}
	}
}

// TestLeasesOverAFailover: leases held when a primary dies are held on its successor,
// with the same names.
func TestLeasesOverAFailover(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts six servers, twice")
	}
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		set := redistest.Sentinel(t)
		store := open(t, redis.Options{
			Addresses: set.Addrs(), Mode: redis.Sentinel, MasterName: redistest.MasterName, Timeout: patient,
		})
		leasesOver(t, store, places("place"), func() {
			caughtUp(t, set.Primary, set.Replicas...)
			set.KillPrimary()
			set.AwaitFailover()
		})
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		set := redistest.Cluster(t)
		store := open(t, redis.Options{Addresses: set.Addrs(), Mode: redis.Cluster, Timeout: patient})
		leasesOver(t, store, places(onPrimary(0)("place")[0]), func() {
			caughtUp(t, set.Primaries[0], set.Replicas[0])
			set.KillPrimary(0)
			set.AwaitFailover(0)
		})
	})
}

func leasesOver(t *testing.T, store *redis.Store, op headgate.Op, failover func()) {
	peek := op
	peek.Kind = headgate.Peek
	await(t, store, peek)
	first, second := take(t, store, op), take(t, store, op)
	failover()
	deadline := time.Now().Add(time.Minute)
	for { // a failed call that only looks changes nothing
		if _, err := headgate.Execute(context.Background(), store, peek); err == nil {
			break
		} else if !errors.Is(err, headgate.ErrUnavailable) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if d := take(t, store, about(op, headgate.Release, first)); d.Granted != 1 {
		t.Errorf("release: %+v", d)
	}
	heldOnce(t, store, op, second, 2)
}

// caughtUp waits until replicas have all the data of their primary: anything they lack
// when it dies is lost.
func caughtUp(t *testing.T, primary *redistest.Server, replicas ...*redistest.Server) {
	t.Helper()
	offset := func(s *redistest.Server, field string) int64 {
		_, rest, _ := strings.Cut(s.Do("INFO", "replication"), field+":")
		value, _, _ := strings.Cut(rest, "\n")
		return number(t, value)
	}
	want := offset(primary, "master_repl_offset")
	deadline := time.Now().Add(time.Minute)
	for _, replica := range replicas {
		for offset(replica, "slave_repl_offset") < want {
			if time.Now().After(deadline) {
				t.Fatal("a replica does not catch up")
			}
		}
	}
}
