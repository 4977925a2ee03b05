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
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// places returns an op on a limit of 3 requests in progress, whose leases outlive the
// test.
func places(key string) store.Op {
	return store.Op{Key: key, Scope: "places", Rule: headgate.Concurrent(3).WithLease(time.Hour).Rule(), Cost: 1}
}

// about returns an op about the lease of d.
func about(op store.Op, kind store.Kind, d store.Decision) store.Op {
	op.Kind, op.Lease = kind, d.Lease
	return op
}

// clusterLeases: in a cluster no lease is held if one of many slots refuses, and a
// lease moves with its slot to another node.
func clusterLeases(t *testing.T, set *redistest.ClusterSet, db *redis.Store) {
	t.Run("AcrossSlots", func(t *testing.T) { leasesAcrossSlots(t, db) })
	t.Run("Resharding", func(t *testing.T) {
		op := places("moving place")
		slot := int(redis.SlotOf(op.Key))
		owner := slot * len(set.Primaries) / redistest.Slots
		from, to := set.Primaries[owner], set.Primaries[(owner+1)%len(set.Primaries)]
		first, second := take(t, db, op), take(t, db, op)
		var renewed store.Decision
		set.MoveSlot(slot, from, to, func() { // clients meet ASK
			renewed = take(t, db, about(op, store.KindRenew, first))
			if d := take(t, db, about(op, store.KindRelease, second)); d.Granted != 1 {
				t.Errorf("release while the slot moves: %+v", d)
			}
		})
		heldOnce(t, db, op, renewed, 2)
		set.MoveSlot(slot, to, from, nil)
	})
}

func leasesAcrossSlots(t *testing.T, db *redis.Store) {
	var ops []store.Op
	for i := range 12 {
		ops = append(ops, places(fmt.Sprint("across", i)))
	}
	full := ops[7]
	full.Cost = 3
	held := take(t, db, full)
	out := make([]store.Decision, len(ops))
	for range 2 {
		if err := store.ExecuteAll(context.Background(), db, ops, out, store.AllOrNothing); err != nil {
			t.Fatal(err)
		}
		for i, d := range out {
			peek := ops[i]
			peek.Kind = store.KindPeek
			left := take(t, db, peek).Remaining
			if d.Lease != 0 || d.Granted != 0 || d.Allowed != (i != 7) || i != 7 && left != 3 {
				t.Errorf("op %d of a refusal: %+v, %d left", i, d, left)
			}
		}
	}
	if d := take(t, db, about(full, store.KindRelease, held)); d.Granted != 3 {
		t.Errorf("release of three: %+v", d)
	}
	if err := store.ExecuteAll(context.Background(), db, ops, out, store.AllOrNothing); err != nil {
		t.Fatal(err)
	}
	for i, d := range out {
		if d.Lease == 0 || d.Granted != 1 {
			t.Errorf("op %d: %+v", i, d)
		}
		if d := take(t, db, about(ops[i], store.KindRelease, d)); d.Granted != 1 {
			t.Errorf("release of op %d: %+v", i, d)
		}
	}
}

// heldOnce: of the three slots of op, all but free are held, one of them by lease,
// which can be renewed, and released once.
func heldOnce(t *testing.T, db *redis.Store, op store.Op, lease store.Decision, free int64) {
	t.Helper()
	peek := op
	peek.Kind = store.KindPeek
	if d := take(t, db, peek); d.Remaining != free {
		t.Fatalf("%d places are free, want %d", d.Remaining, free)
	}
	for range free {
		if d := take(t, db, op); d.Lease == 0 {
			t.Errorf("a free place: %+v", d)
		}
	}
	if d := take(t, db, op); d.Allowed {
		t.Errorf("a fourth of three: %+v", d)
	}
	renewed := take(t, db, about(op, store.KindRenew, lease))
	if !renewed.Allowed {
		t.Errorf("renewal: %+v", renewed)
	}
	for i, want := range []int64{1, 0} {
		if d := take(t, db, about(op, store.KindRelease, renewed)); d.Granted != want {
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

func leasesOver(t *testing.T, db *redis.Store, op store.Op, failover func()) {
	peek := op
	peek.Kind = store.KindPeek
	await(t, db, peek)
	first, second := take(t, db, op), take(t, db, op)
	failover()
	deadline := time.Now().Add(time.Minute)
	for { // a failed call that only looks changes nothing
		if _, err := store.Execute(context.Background(), db, peek); err == nil {
			break
		} else if !errors.Is(err, store.ErrUnavailable) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if d := take(t, db, about(op, store.KindRelease, first)); d.Granted != 1 {
		t.Errorf("release: %+v", d)
	}
	heldOnce(t, db, op, second, 2)
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
