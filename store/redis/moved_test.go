package redis_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// TestAddressThatMoves: after a fail-over the address of a store leads to another
// server, and the old one lives on. It still answers the connections that it has, with
// an error that says that it is not, or cannot be, the right one: the store finds the
// right one, and counts there. Bans and the exchange of regions do too.
func TestAddressThatMoves(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		code    string
		becomes func(old, now *redistest.Server)
	}{
		{"a replica of it", "READONLY", func(old, now *redistest.Server) { old.Do("REPLICAOF", host(now), port(now)) }},
		{"a replica that has lost it", "MASTERDOWN", func(old, _ *redistest.Server) {
			old.Do("CONFIG", "SET", "replica-serve-stale-data", "no")
			old.Do("REPLICAOF", "127.0.0.1", "1")
		}},
		{"cut off", "NOREPLICAS", func(old, _ *redistest.Server) { old.Do("CONFIG", "SET", "min-replicas-to-write", "1") }},
		{"full", "OOM", func(old, _ *redistest.Server) { old.Do("CONFIG", "SET", "maxmemory", "1") }},
		{"loading", "LOADING", load},
		{"not able to save", "MISCONF", failToSave},
		{"without its slots", "CLUSTERDOWN", func(old, _ *redistest.Server) { old.Do("CLUSTER", "DELSLOTSRANGE", "0", "16383") }},
		{"for users with a password", "NOPERM", func(old, _ *redistest.Server) { old.Do("ACL", "SETUSER", "default", "-evalsha", "-eval") }},
	} {
		t.Run(row.name, func(t *testing.T) {
			var args []string
			if row.code == "CLUSTERDOWN" {
				args = []string{"--cluster-enabled", "yes"}
			}
			old, now := redistest.Standalone(t, args...), redistest.Standalone(t)
			if args != nil {
				old.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
				until(t, old, "CLUSTER", "INFO", "cluster_state:ok")
			}
			way := redistest.NewProxy(t, old.Addr)
			o := redis.Options{Addresses: []string{way.Addr}, Timeout: patient}
			db, e := open(t, o), exchange(t, o)
			awaitTake(t, db)
			peek := one
			peek.Kind = store.KindPeek
			for range 64 { // opens all connections: one that is opened later leads to the right server
				_, _ = store.Execute(t.Context(), db, peek)
			}
			if err := e.Publish(t.Context(), []byte("news")); err != nil {
				t.Fatal(err)
			}
			row.becomes(old, now)
			way.Lead(now.Addr)
			if row.code == "NOPERM" { // an error about one request says nothing about the server
				_, _ = store.Execute(t.Context(), db, one)
				if n := db.Connections().Moved; n != 0 {
					t.Errorf("moved %d times", n)
				}
				return
			}
			began := time.Now()
			awaitTake(t, db)
			for e.Publish(t.Context(), []byte("more")) != nil {
				if time.Since(began) > comeback {
					t.Fatal("the exchange did not come back")
				}
			}
			t.Logf("after %s", time.Since(began))
			is := db.Connections()
			if is.Moved != 1 || is.Errors[row.code] == 0 {
				t.Errorf("%+v, want one move because of %s", is, row.code)
			}
			if now.Do("EXISTS", redis.KeyOf("hg", &one)) != "1" || now.Do("EXISTS", "hg:{%regions}:news") != "1" {
				t.Error("not on the server that the address leads to")
			}
		})
	}
}

// load makes a server load its data for a long time.
func load(old, _ *redistest.Server) {
	old.Do("CONFIG", "SET", "rdbcompression", "no", "loading-process-events-interval-bytes", "1024", "key-load-delay", "20000")
	old.Do("EVAL", `for i = 1, 2000 do redis.call('SET', 'k' .. i, string.rep('x', 2000)) end`, "0")
	go func() { _, _ = old.Command("DEBUG", "RELOAD") }() // ends with the server
	for answer := ""; !strings.Contains(answer, "LOADING"); {
		if _, err := old.Command("GET", "k1"); err != nil {
			answer = err.Error()
		}
	}
}

// failToSave takes the folder of a server away.
func failToSave(old, _ *redistest.Server) {
	old.Do("CONFIG", "SET", "save", "3600 1")
	_ = os.RemoveAll(old.Dir)
	old.Do("BGSAVE")
	for !strings.Contains(old.Do("INFO", "persistence"), "rdb_last_bgsave_status:err") {
		wait(10 * time.Millisecond)
	}
}

// until waits until a server's answer has a text.
func until(t *testing.T, server *redistest.Server, first, second, want string) {
	t.Helper()
	for began := time.Now(); !strings.Contains(server.Do(first, second), want); wait(10 * time.Millisecond) {
		if time.Since(began) > comeback {
			t.Fatalf("no %s", want)
		}
	}
}

// TestWritableOldPrimary: an old primary that still accepts writes gives no error; the
// store looks where its address leads from time to time.
func TestWritableOldPrimary(t *testing.T) {
	old, now := redistest.Standalone(t), redistest.Standalone(t)
	way := redistest.NewProxy(t, old.Addr)
	store := open(t, redis.Options{Addresses: []string{way.Addr}, Timeout: patient})
	awaitTake(t, store)
	store.LookAround()
	if n := store.Connections().Moved; n != 0 {
		t.Fatalf("moved %d times, from a server to itself", n)
	}
	way.Lead(now.Addr)
	store.LookAround()
	awaitTake(t, store)
	if store.Connections().Moved != 1 || now.Do("EXISTS", redis.KeyOf("hg", &one)) != "1" {
		t.Errorf("%+v: still on the old server", store.Connections())
	}
}

// TestSameServerIsKept: if the address still leads to the server that gave the error,
// the connections stay, so that calls in progress do.
func TestSameServerIsKept(t *testing.T) {
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	awaitTake(t, db)
	before := connections(server)
	server.Do("CONFIG", "SET", "maxmemory", "1")
	op := one
	op.Key = "another"
	for began := time.Now(); time.Since(began) < 300*time.Millisecond; {
		_, _ = store.Execute(context.Background(), db, op)
	}
	server.Do("CONFIG", "SET", "maxmemory", "0")
	take(t, db, op)
	if is := db.Connections(); is.Moved != 0 || is.Errors["OOM"] == 0 || len(before) == 0 {
		t.Errorf("%+v, connections before %q", is, before)
	}
	for _, id := range before {
		if now := connections(server); !slices.Contains(now, id) {
			t.Errorf("connections %q, before %q", now, before)
		}
	}
}

// TestServerWithoutAName: a user who may not ask a server for its name, as in an ACL without
// +info, has the connections made again after an error. But nobody says that the address leads
// to another server, as that is not known.
func TestServerWithoutAName(t *testing.T) {
	server := redistest.Standalone(t)
	server.Do("ACL", "SETUSER", "default", "-info")
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	awaitTake(t, db)
	server.Do("CONFIG", "SET", "maxmemory", "1")
	op := one
	op.Key = "another"
	for began, before := time.Now(), len(connections(server)); len(connections(server)) <= before; {
		if _, _ = store.Execute(context.Background(), db, op); time.Since(began) > comeback {
			t.Fatal("the connections stay")
		}
	}
	server.Do("CONFIG", "SET", "maxmemory", "0")
	awaitTake(t, db)
	if is := db.Connections(); is.Moved != 0 || is.Errors["OOM"] == 0 {
		t.Errorf("%+v", is)
	}
}

// connections returns the ids of the connections that stores have.
func connections(server *redistest.Server) (ids []string) {
	for line := range strings.Lines(server.Do("CLIENT", "LIST")) {
		if id, rest, _ := strings.Cut(line, " "); strings.Contains(rest, " name=headgate ") {
			ids = append(ids, id)
		}
	}
	return ids
}

// TestPlannedFailover: sentinels replace a primary that works, which then becomes a
// replica. The first call that it refuses finds the new one.
func TestPlannedFailover(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts six servers")
	}
	set := redistest.Sentinel(t)
	db := open(t, redis.Options{Addresses: set.Addrs(), Mode: redis.Sentinel, MasterName: redistest.MasterName, Timeout: patient})
	awaitTake(t, db)
	set.Sentinels[0].Do("SENTINEL", "FAILOVER", redistest.MasterName)
	primary := set.AwaitFailover()
	for {
		role, err := set.Primary.Command("INFO", "replication") // fails once: a demoted server drops its clients
		if err == nil && strings.Contains(fmt.Sprint(role), "role:slave") {
			break
		}
		wait(10 * time.Millisecond) // until then it counts, and loses that
	}
	op := store.Op{Key: "after", Rule: headgate.PerHour(3).Rule(), Cost: 1}
	await(t, db, op)
	if primary.Do("EXISTS", redis.KeyOf("hg", &op)) != "1" {
		t.Error("counted elsewhere")
	}
}

func host(s *redistest.Server) string { before, _, _ := strings.Cut(s.Addr, ":"); return before }
func port(s *redistest.Server) string { _, after, _ := strings.Cut(s.Addr, ":"); return after }
