package redis_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// exchange returns an Exchange whose own region and other, us, are the same servers.
func exchange(t *testing.T, o redis.Options) *redis.Exchange {
	t.Helper()
	e, err := redis.NewExchange(o, map[string]redis.Options{"us": o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// TestExchangeOnANewCluster: the first calls of a process are answered. They used to
// wait a second for a node's connection that another call had taken.
func TestExchangeOnANewCluster(t *testing.T) {
	t.Parallel()
	set := redistest.Cluster(t)
	for range 5 {
		e := exchange(t, redis.Options{Addresses: set.Addrs(), Mode: redis.Cluster})
		if err := e.Publish(t.Context(), []byte("news")); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Lead(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		if b, err := e.Read(t.Context(), "us", ""); err != nil || len(b.Messages) == 0 {
			t.Fatalf("%d messages, %v", len(b.Messages), err)
		}
	}
}

// All processes of a region see the same identity, until its servers lose their data.
func TestExchangeHasAnIdentity(t *testing.T) {
	server := redistest.Standalone(t)
	identity := func(e *redis.Exchange) string {
		t.Helper()
		is, err := e.Lead(t.Context(), time.Second)
		if err != nil || is.Identity == "" {
			t.Fatalf("%+v, %v", is, err)
		}
		return is.Identity
	}
	one, two := exchange(t, redis.Options{Addresses: []string{server.Addr}}), exchange(t, redis.Options{Addresses: []string{server.Addr}})
	before := identity(one)
	if again, other := identity(one), identity(two); again != before || other != before {
		t.Errorf("identities %s, %s and %s of one store", before, again, other)
	}
	other := exchange(t, redis.Options{Addresses: []string{redistest.Standalone(t).Addr}})
	if identity(other) == before {
		t.Error("two stores have the same identity")
	}
	server.Do("FLUSHALL")
	if identity(two) == before {
		t.Error("the identity outlives the data")
	}
}

// What another key of this name has is told with the name.
func TestExchangeNamesAKeyOfAnotherKind(t *testing.T) {
	server := redistest.Standalone(t)
	server.Do("SET", "hg:{%regions}:news", "x")
	e := exchange(t, redis.Options{Addresses: []string{server.Addr}})
	_, err := e.Read(t.Context(), "us", "")
	for _, err := range []error{err, e.Publish(t.Context(), []byte("news"))} {
		if err == nil || !strings.Contains(err.Error(), "hg:{%regions}:news: WRONGTYPE") {
			t.Errorf("got %v", err)
		}
	}
}

// TLS to a port without it waits for an answer that never comes: the error says what to look at.
func TestExchangeWithTLSToAPlainPort(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	o, err := redis.ParseURL("rediss://" + server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	_, err = exchange(t, o).Read(t.Context(), "us", "")
	if err == nil || !strings.Contains(err.Error(), server.Addr+": no connection yet; does that port speak TLS") || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// TestExchangeReadsABacklog: nothing is missing however many messages there are, even
// after a read that took too long.
func TestExchangeReadsABacklog(t *testing.T) {
	const published = 500
	server := redistest.Standalone(t)
	e := exchange(t, redis.Options{Addresses: []string{server.Addr}})
	for i := range published {
		if err := e.Publish(t.Context(), []byte(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Read(t.Context(), "us", ""); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	_, err := e.Read(short, "us", "")
	cancel()
	if server.Resume(); !errors.Is(err, store.ErrUnavailable) {
		t.Fatal(err)
	}
	after, got := "", 0
	for {
		b, err := e.Read(t.Context(), "us", after)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range b.Messages {
			if string(m.Data) != strconv.Itoa(got) {
				t.Fatalf("message %d is %s", got, m.Data)
			}
			after, got = m.ID, got+1
		}
		if !b.More {
			break
		}
	}
	if got != published {
		t.Errorf("%d of %d messages", got, published)
	}
}

// TestExchangeReadsLargeMessagesOneByOne: somebody who can write to a region's Redis
// cannot make the others read very much at once.
func TestExchangeReadsLargeMessagesOneByOne(t *testing.T) {
	server := redistest.Standalone(t)
	e := exchange(t, redis.Options{Addresses: []string{server.Addr}})
	if _, err := e.Read(t.Context(), "us", ""); err != nil {
		t.Fatal(err)
	}
	const messages = 30
	large := make([]byte, 2<<20)
	for range messages {
		if err := e.Publish(t.Context(), large); err != nil {
			t.Fatal(err)
		}
	}
	after, got, most := "", 0, 0
	for reads := 0; got < messages; reads++ {
		if reads > messages {
			t.Fatalf("%d messages after %d reads", got, reads)
		}
		b, err := e.Read(t.Context(), "us", after)
		if err != nil {
			t.Fatal(err)
		}
		got, most = got+len(b.Messages), max(most, len(b.Messages))
		after = b.Messages[len(b.Messages)-1].ID
	}
	if most > 4 {
		t.Errorf("%d messages of 2 MiB in one read", most)
	}
}

// TestExchangeDoesNotWaitForAConnection: a call ends at its own deadline while a server
// that accepts connections does not answer, and the attempt serves later calls.
func TestExchangeDoesNotWaitForAConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	e := exchange(t, redis.Options{Addresses: []string{l.Addr().String()}})
	quickest := time.Hour
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		began := time.Now()
		if err := e.Publish(ctx, []byte("news")); !errors.Is(err, store.ErrUnavailable) {
			t.Error(err)
		}
		quickest = min(quickest, time.Since(began))
		cancel()
	}
	if quickest >= time.Second { // as long as an attempt may take
		t.Errorf("every call took %s or more", quickest)
	}
}

// TestExchangeAfterTheClockWasSetBack: messages with IDs in the future are removed, as
// they would never grow old.
func TestExchangeAfterTheClockWasSetBack(t *testing.T) {
	server := redistest.Standalone(t)
	e := exchange(t, redis.Options{Addresses: []string{server.Addr}})
	if err := e.Publish(t.Context(), []byte("before")); err != nil {
		t.Fatal(err)
	}
	ahead := strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)
	server.Do("XADD", "hg:{%regions}:news", ahead, "m", "ahead")
	for _, text := range []string{"one", "two"} {
		if err := e.Publish(t.Context(), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	b, err := e.Read(t.Context(), "us", ahead+"-0")
	if err != nil || len(b.Messages) != 2 || string(b.Messages[0].Data) != "one" {
		t.Errorf("%+v, %v", b, err)
	}
}
