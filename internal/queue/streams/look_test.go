package streams_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/queue/streams"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// A sender may ask for the status of its request as often as it likes, before and after it
// becomes a dead letter, so Redis must not send the whole request each time.
func TestStatusDoesNotReadTheRequest(t *testing.T) {
	server := redistest.Standalone(t)
	o := streams.Options{Options: redis.Options{Addresses: []string{server.Addr}, Prefix: "hg", Clock: time.Now}, Logger: slog.New(slog.DiscardHandler)}
	var works, open atomic.Bool
	q := queue.New(queue.Options{
		Store: streams.New(o), Clock: time.Now, Logger: o.Logger, Random: func(int64) int64 { return 0 },
		Policy: func(string, string) queue.Policy {
			p := policy("", "")
			p.Retries = 0
			return p
		},
		Take: func(context.Context, *queue.Ref, time.Time) (queue.Permit, error) {
			return queue.Permit{Allowed: open.Load(), RetryAfter: 10 * time.Millisecond, Own: true}, nil
		},
		Send: func(context.Context, *queue.Entry, int64) (queue.Answer, error) {
			if works.Load() {
				return queue.Answer{Status: 201}, nil
			}
			return queue.Answer{}, errors.New("no backend")
		},
	})
	q.Start()
	defer closing(t, q)
	e := entry(1, 1)
	e.Body, e.Accepted = bytes.Repeat([]byte{1}, 1<<20), time.Date(2020, 2, 3, 4, 5, 6, 7000, time.UTC)
	e.Expires = time.Now().Add(time.Hour)
	receipt, err := q.Accept(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	base := "hg:q:{" + receipt.ID[:12] + "}"
	looks := func(want queue.State, attempts int) {
		t.Helper()
		var item *queue.Item
		awaitTrue(t, func() bool {
			item, err = q.Look(t.Context(), receipt.ID)
			return err == nil && item.State == want
		})
		if !item.Entry.Accepted.Equal(e.Accepted) || item.Attempts.Count != attempts {
			t.Errorf("%s: accepted %s after %d attempts", want, item.Entry.Accepted, item.Attempts.Count)
		}
		before := sent(t, server)
		for range 100 {
			if _, err := q.Look(t.Context(), receipt.ID); err != nil {
				t.Fatal(err)
			}
		}
		if n := sent(t, server) - before; n > 200<<10 {
			t.Errorf("%s: Redis sent %d bytes for 100 statuses", want, n)
		}
	}
	looks(queue.Pending, 0)
	open.Store(true)
	looks(queue.Dead, 1)
	open.Store(false)
	if ids, err := q.Retry(t.Context(), []string{receipt.ID}); err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	looks(queue.Pending, 0)
	// As an older version leaves it.
	server.Do("HDEL", base+":s", receipt.ID)
	if item, err := q.Look(t.Context(), receipt.ID); err != nil || !item.Entry.Accepted.Equal(e.Accepted) {
		t.Errorf("%+v, %v", item, err)
	}
	works.Store(true)
	open.Store(true)
	awaitTrue(t, func() bool {
		item, err := q.Look(t.Context(), receipt.ID)
		return err == nil && item.State == queue.Delivered && item.Result.Status == 201 && item.Result.Accepted.Equal(e.Accepted)
	})
	if got := server.Do("HKEYS", base+":s"); got != "-" {
		t.Errorf("notes are left over: %s", got)
	}
	if _, err := q.Look(t.Context(), receipt.ID[:12]+"X"); !errors.Is(err, queue.ErrNotFound) {
		t.Error(err)
	}
}

// sent returns how many bytes the server has sent to its clients.
func sent(t *testing.T, server *redistest.Server) int {
	t.Helper()
	found := regexp.MustCompile(`total_net_output_bytes:(\d+)`).FindStringSubmatch(server.Do("INFO", "stats"))
	if found == nil {
		t.Fatal("INFO has no total_net_output_bytes")
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// All processes have the same secret, until Redis loses it.
func TestSecretIsShared(t *testing.T) {
	server := redistest.Standalone(t)
	of := func() []byte {
		s := streams.New(streams.Options{Options: redis.Options{Addresses: []string{server.Addr}, Prefix: "hg", Clock: time.Now}, Logger: slog.New(slog.DiscardHandler)})
		defer func() { _ = s.Close() }()
		value, err := s.Secret(t.Context())
		if err != nil || len(value) != queue.SecretSize {
			t.Fatalf("%x, %v", value, err)
		}
		return value
	}
	one, two := of(), of()
	server.Do("FLUSHALL")
	if three := of(); !bytes.Equal(one, two) || bytes.Equal(one, three) {
		t.Errorf("%x, %x, after a loss %x", one, two, three)
	}
}
