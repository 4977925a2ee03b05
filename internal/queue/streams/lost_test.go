package streams_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/queue/streams"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// A node that has announced its queues does so again if Redis has lost the list, until it
// succeeds. Otherwise a node that takes its place would not find what others have put since.
func TestQueuesOfARedisThatLostItsData(t *testing.T) {
	server, b := redistest.Standalone(t), newBackend()
	o := streams.Options{Options: redis.Options{Addresses: []string{server.Addr}}}
	sends := node(t, o, "sends", b)
	sends.Start()
	puts := node(t, o, "puts", b) // it is not started, so it looks for nothing
	defer closing(t, puts)
	accept := func(q *queue.Queue, key, number int) {
		t.Helper()
		if _, err := q.Accept(t.Context(), entry(key, number)); err != nil {
			t.Fatal(err)
		}
	}
	accept(sends, 1, 1)
	accept(puts, 2, 1)
	b.await(t, 2)
	server.Do("ACL", "SETUSER", "default", "-hset")
	server.Do("FLUSHALL")
	awaitTrue(t, func() bool {
		refused := server.Do("ACL", "LOG")
		return strings.Contains(refused, "toplevel") && strings.Contains(refused, "hset")
	})
	server.Do("ACL", "SETUSER", "default", "+hset")
	awaitTrue(t, func() bool { return server.Do("KEYS", "hg:q:nodes") != "" }) // it has looked again
	closing(t, sends)
	late := node(t, o, "late", b)
	late.Start()
	defer closing(t, late)
	accept(puts, 2, 2)
	b.await(t, 3)
}

// A Redis that has no memory left refuses an entry. The caller is told at once and does not
// wait until their time is up; once there is memory, entries are accepted again.
func TestRefusedByAFullRedis(t *testing.T) {
	server := redistest.Standalone(t)
	s := streams.New(streams.Options{Options: redis.Options{Addresses: []string{server.Addr}, Prefix: "hg", Clock: time.Now}, Logger: slog.New(slog.DiscardHandler)})
	p := policy("", "")
	put := func(number int) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := s.Put(ctx, entry(1, number), &p)
		if ctx.Err() != nil {
			t.Fatalf("waited to the end: %v", err)
		}
		return err
	}
	if err := put(1); err != nil {
		t.Fatal(err)
	}
	server.Do("CONFIG", "SET", "maxmemory", "1")
	if err := put(2); !errors.Is(err, queue.ErrUnavailable) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("without memory: %v", err)
	}
	server.Do("CONFIG", "SET", "maxmemory", "0")
	if err := put(3); err != nil {
		t.Errorf("with memory again: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
