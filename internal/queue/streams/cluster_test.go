package streams_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/queue/streams"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// In a cluster all keys of a limit are in one slot, so the queue works as on one server.
// Losing its primary loses nothing if a replica must have each entry.
func TestClusterLosesNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts six servers")
	}
	set := redistest.Cluster(t, "--appendonly", "yes", "--appendfsync", "always")
	o := streams.Options{Options: redis.Options{Addresses: set.Addrs(), Mode: redis.Cluster}, Replicas: 1}
	interrupted(t, o, func() {
		owner := primaryOfQueue(t, set)
		set.KillPrimary(owner)
		set.AwaitFailover(owner)
		set.Primaries[owner].Restart() // like a replica: without one nothing is accepted
	})
}

// primaryOfQueue returns the primary that has the entries.
func primaryOfQueue(t *testing.T, set *redistest.ClusterSet) int {
	t.Helper()
	for i, p := range set.Primaries {
		if len(lines(p.Do("KEYS", "hg:q:{*}:r"))) > 0 {
			return i
		}
	}
	t.Fatal("no primary has entries")
	return 0
}

// The operators' commands work in a cluster too.
func TestClusterOperations(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts six servers")
	}
	set := redistest.Cluster(t)
	store := streams.New(streams.Options{Options: redis.Options{Addresses: set.Addrs()[:2], Mode: redis.Cluster, Prefix: "hg", Clock: time.Now}, Logger: slog.New(slog.DiscardHandler)})
	p := policy("", "")
	var ids []string
	for limit := range 5 { // in separate slots
		for number := 1; number <= 4; number++ {
			e := entry(number, number)
			e.Rule = []string{"a", "b", "c", "d", "e"}[limit]
			e.Scope = "api/" + e.Rule
			receipt, err := store.Put(t.Context(), e, &p)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, receipt.ID)
		}
	}
	depths, err := store.Depths(t.Context())
	if err != nil || len(depths) != 5 {
		t.Fatalf("%+v, %v", depths, err)
	}
	for _, d := range depths {
		if d.Entries != 4 || d.Rule == "" {
			t.Errorf("%+v", d)
		}
	}
	silentShard(t, set, store)
	items, err := store.List(t.Context(), queue.Query{State: queue.Pending, Limit: 100})
	if err != nil || len(items) != 20 {
		t.Errorf("%d items, %v", len(items), err)
	}
	dropped, err := store.Drop(t.Context(), ids[:12])
	if err != nil || len(dropped) != 12 {
		t.Errorf("%d dropped, %v", len(dropped), err)
	}
	if items, err = store.List(t.Context(), queue.Query{State: queue.Pending, Limit: 100}); err != nil || len(items) != 8 {
		t.Errorf("%d items are left, %v", len(items), err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// silentShard: for limits in a shard that does not answer, nothing is known to wait; for the
// others it is.
func silentShard(t *testing.T, set *redistest.ClusterSet, store *streams.Store) {
	t.Helper()
	silent := primaryOfQueue(t, set)
	want := len(lines(set.Primaries[silent].Do("KEYS", "hg:q:{*}:r")))
	if want == 5 {
		t.Fatal("all limits are in one shard")
	}
	set.Primaries[silent].Pause()
	defer set.Primaries[silent].Resume()
	for pass := range 2 {
		unknown := 0
		for _, rule := range []string{"a", "b", "c", "d", "e"} {
			if _, err := store.Waiting(t.Context(), queue.Line{Scope: "api/" + rule, Key: "k"}); err != nil {
				unknown++
			}
		}
		if unknown != want {
			t.Errorf("pass %d: of %d limits it is not known who waits, want %d", pass, unknown, want)
		}
	}
}
