package streams_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/queue/streams"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// The entries of one key are found among more than one page, pending and dead.
func TestListOfAKey(t *testing.T) {
	server := redistest.Standalone(t)
	s := streams.New(streams.Options{Options: redis.Options{Addresses: []string{server.Addr}, Prefix: "hg", Clock: time.Now}, Logger: slog.New(slog.DiscardHandler)})
	p := policy("", "")
	const n = 1200
	var base string
	for i := range n {
		receipt, err := s.Put(t.Context(), entry(1, i), &p)
		if err != nil {
			t.Fatal(err)
		}
		base = "hg:q:{" + receipt.ID[:12] + "}"
	}
	// At least one of those keys shares the stream of the first.
	for key := 2; key < 40; key++ {
		if _, err := s.Put(t.Context(), entry(key, 0), &p); err != nil {
			t.Fatal(err)
		}
	}
	list := func(state queue.State, key, limit int) []string {
		items, err := s.List(t.Context(), queue.Query{State: state, Lane: &queue.Line{Scope: "api/orders", Key: fmt.Sprintf("key %d", key)}, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		var uris []string
		for i := range items {
			uris = append(uris, items[i].Entry.URI)
		}
		return uris
	}
	if got := list(queue.Pending, 1, 3); !slices.Equal(got, []string{"/1/0", "/1/1", "/1/2"}) {
		t.Errorf("%v", got)
	}
	for key := 2; key < 40; key++ {
		if got, want := list(queue.Pending, key, 10), fmt.Sprintf("/%d/0", key); len(got) != 1 || got[0] != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
	// As if all of the first key had become dead letters, and one of the second later.
	for i, id := range lines(server.Do("HKEYS", base+":x")) {
		if id == "-" {
			continue
		}
		place := strings.Fields(server.Do("HGET", base+":x", id))
		server.Do("HSET", base+":x", id, "0 "+strings.Join(place[1:], " "))
		server.Do("HSET", base+":a", id, "{}")
		server.Do("ZADD", base+":z", strconv.Itoa(i), id)
	}
	if got := list(queue.Dead, 2, 10); len(got) != 1 || got[0] != "/2/0" {
		t.Errorf("dead: %v", got)
	}
	if got := list(queue.Dead, 1, n+10); len(got) != n {
		t.Errorf("%d dead letters of the first key", len(got))
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
