package upgrade_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/queue/file"
	"github.com/headgate/headgate/internal/queue/streams"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

func queueInFile(t *testing.T, path string) queue.Store {
	t.Helper()
	s, repair, err := file.Open(file.Options{Path: path, Clock: time.Now})
	if err != nil || repair != nil {
		t.Fatal(err, repair)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func queueInRedis(t *testing.T, server *redistest.Server) queue.Store {
	t.Helper()
	s := streams.New(streams.Options{
		Options: redis.Options{Addresses: []string{server.Addr}, Prefix: "hg", Timeout: 10 * time.Second, Clock: time.Now},
		Logger:  slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// firstID is the ID of the first request that fill puts into a queue.
const firstID = "5K2J0B8H3M4Q6R1T9V7P2C40"

// fill puts a request into a queue whose claims give a part of their limit, which needs
// the later version of records, and one that does not.
func fill(t *testing.T, s queue.Store) {
	t.Helper()
	for i, given := range []string{"", "@Asia/Tokyo"} {
		e := &queue.Entry{
			ID: fmt.Sprint(strings.TrimSuffix(firstID, "0"), i), Domain: "api", Rule: "orders", Scope: "\x03api\x06orders", Key: "\x01a",
			Claims: []queue.Claim{{Rule: "orders", Key: "\x01a", Cost: 1}, {Rule: "all", Cost: 20, Given: given}},
			Method: http.MethodPost, URI: "/orders?x=1", Host: "api.example",
			Header: http.Header{"Content-Type": {"application/json"}, "X-Many": {"a", "b"}}, Body: []byte("{\"n\":\"größe ☃\"}\x00"),
			IdempotencyKey: fmt.Sprint("mine", i), Accepted: start.Add(time.Duration(i) * time.Second), Expires: farAway,
		}
		p := queue.DefaultPolicy()
		if _, err := s.Put(t.Context(), e, &p); err != nil {
			t.Fatal(err)
		}
	}
}

// listed returns what is in a queue as a text.
func listed(t *testing.T, s queue.Store) (text string) {
	t.Helper()
	items, err := s.List(t.Context(), queue.Query{State: queue.Pending, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range items {
		found, err := s.Find(t.Context(), item.Entry.ID)
		if err != nil {
			t.Fatal(err)
		}
		e := *found.Entry
		e.ID = e.ID[len(e.ID)-len(firstID):] // in Redis, the partition comes before it
		e.Accepted, e.Expires = e.Accepted.UTC(), e.Expires.UTC()
		text += fmt.Sprintf("%s %+v\n%+v\n", item.State, item.Attempts, e)
	}
	return text
}
