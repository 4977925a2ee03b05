package streams_test

import (
	"testing"

	"github.com/headgate/headgate/internal/queue/streams"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// A fail-over moves the address of Redis, and makes the old server a replica. Requests
// are queued, and sent, at the new one.
func TestQueueAtAnAddressThatMoves(t *testing.T) {
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
