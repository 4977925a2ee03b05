package streams_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/queue/streams"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// A fail-over moves the address of Redis, and makes the old server a replica. Requests
// are queued, and sent, at the new one.
func TestQueueAtAnAddressThatMoves(t *testing.T) {
	t.Parallel()
	old, now := redistest.Standalone(t), redistest.Standalone(t)
	way, b := redistest.NewProxy(t, old.Addr), newBackend()
	q := node(t, streams.Options{Options: redis.Options{Addresses: []string{way.Addr}}}, "one", b)
	q.Start()
	defer closing(t, q)
	if _, err := q.Accept(t.Context(), entry(1, 1)); err != nil {
		t.Fatal(err)
	}
	b.await(t, 1)
	old.Do("REPLICAOF", "127.0.0.1", "1")
	way.Lead(now.Addr)
	awaitTrue(t, func() bool {
		_, err := q.Accept(t.Context(), entry(1, 2))
		return err == nil
	})
	b.await(t, 2)
	if now.Do("KEYS", "hg:q:nodes") == "" {
		t.Error("the queue is not at the server that the address leads to")
	}
}

// TestQueueLeavesARefusedLoginAlone: a Redis that refuses the password is not asked again
// until the pause is over, whose clock stands still here.
func TestQueueLeavesARefusedLoginAlone(t *testing.T) {
	server := redistest.Standalone(t)
	server.Do("ACL", "SETUSER", "gate", "on", ">right", "~*", "+@all")
	o := redis.Options{
		Addresses: []string{server.Addr}, Username: "gate", Password: "wrong", Prefix: "hg",
		Clock: func() time.Time { return time.Unix(1e9, 0) },
	}
	s := streams.New(streams.Options{Options: o, Logger: slog.New(slog.DiscardHandler)})
	defer func() { _ = s.Close() }()
	connections := func() (n int) {
		t.Helper()
		_, after, _ := strings.Cut(server.Do("INFO", "stats"), "total_connections_received:")
		if _, err := fmt.Sscan(after, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := connections()
	for range 20 {
		if _, err := s.Depths(t.Context()); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
			t.Fatal(err)
		}
	}
	if made := connections() - before - 1; made != 1 { // one is that of connections
		t.Errorf("%d connections, want 1", made)
	}
}
