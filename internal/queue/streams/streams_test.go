package streams_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/queue/streams"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// backend records what arrives, and from which node.
type backend struct {
	mu      sync.Mutex
	arrived []string
	by      map[string]int
	first   map[string]bool
	changed chan struct{}
}

func newBackend() *backend {
	return &backend{by: map[string]int{}, first: map[string]bool{}, changed: make(chan struct{}, 1)}
}

func (b *backend) take(node string, e *queue.Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.by[node]++
	if !b.first[e.URI] {
		b.first[e.URI] = true
		b.arrived = append(b.arrived, e.URI)
	}
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// patience is long enough for a machine that has much else to do.
const patience = 5 * time.Minute

// await waits until that many different entries have arrived.
func (b *backend) await(t *testing.T, n int) {
	t.Helper()
	timeout := time.After(patience)
	for {
		b.mu.Lock()
		got := len(b.first)
		b.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-b.changed:
		case <-timeout:
			t.Fatalf("%d of %d entries have arrived", got, n)
		}
	}
}

func policy(string, string) queue.Policy {
	p := queue.DefaultPolicy()
	p.MaxEntries, p.KeyShare, p.BackoffLeast, p.BackoffMost = 100_000, 100, 10*time.Millisecond, 100*time.Millisecond
	return p
}

// node acts as a separate process towards Redis.
func node(t *testing.T, o streams.Options, name string, b *backend) *queue.Queue {
	t.Helper()
	o.Prefix, o.Clock, o.Logger = "hg", time.Now, slog.New(slog.DiscardHandler)
	q := queue.New(queue.Options{
		Store: streams.New(o), Policy: policy, Clock: time.Now, Logger: o.Logger,
		Random: func(int64) int64 { return 0 },
		Take: func(context.Context, *queue.Ref, time.Time) (queue.Permit, error) {
			return queue.Permit{Allowed: true}, nil
		},
		Send: func(_ context.Context, e *queue.Entry, _ int64) (queue.Answer, error) {
			b.take(name, e)
			return queue.Answer{Status: http.StatusOK}, nil
		},
	})
	return q
}

func entry(key, number int) *queue.Entry {
	now := time.Now()
	return &queue.Entry{
		ID: queue.NewID(), Domain: "api", Rule: "orders", Scope: "api/orders", Key: fmt.Sprintf("key %d", key),
		Claims: []queue.Claim{{Rule: "orders", Key: "k", Cost: 1}}, Method: "POST", URI: fmt.Sprintf("/%d/%d", key, number),
		Body: []byte("body"), Accepted: now, Expires: now.Add(time.Hour),
	}
}

// inOrder fails if entries of one key first arrived in a different order than they were
// accepted.
func (b *backend) inOrder(t *testing.T) {
	t.Helper()
	last := map[int]int{}
	for _, uri := range b.arrived {
		var key, number int
		if _, err := fmt.Sscanf(uri, "/%d/%d", &key, &number); err != nil {
			t.Fatal(err)
		}
		if number <= last[key] {
			t.Errorf("%s arrived after number %d", uri, last[key])
		}
		last[key] = number
	}
}

func closing(t *testing.T, q *queue.Queue) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := q.Close(ctx); err != nil {
		t.Error(err)
	}
}

// Two nodes share the work: each sends some, nothing is lost, and nothing is out of order.
func TestTwoNodesShareTheWork(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		o := streams.Options{Options: redis.Options{Addresses: []string{server.Addr}}}
		b := newBackend()
		first, second := node(t, o, "first", b), node(t, o, "second", b)
		first.Start()
		second.Start()
		defer closing(t, first)
		defer closing(t, second)
		const keys = 20
		sent := 0
		for round := 1; ; round++ {
			for key := range keys {
				q := []*queue.Queue{first, second}[(round+key)%2]
				if _, err := q.Accept(t.Context(), entry(key, round)); err != nil {
					t.Fatal(err)
				}
				sent++
			}
			b.mu.Lock()
			shared := b.by["first"] > 50 && b.by["second"] > 50
			b.mu.Unlock()
			if shared {
				break
			}
			if round > 20_000 {
				t.Fatalf("after %d entries: %v", sent, b.by)
			}
		}
		b.await(t, sent)
		b.inOrder(t)
		if n := b.by["first"] + b.by["second"]; n != sent {
			t.Errorf("%d entries were sent %d times", sent, n)
		}
		t.Logf("%d entries: %v", sent, b.by)
	})
}

// Entries that a node had read when it died are sent by another.
func TestAnotherNodeTakesOver(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	o := streams.Options{Options: redis.Options{Addresses: []string{server.Addr}}}
	b := newBackend()
	// The dying node never releases its leases: it reads and sends nothing.
	dead := streams.New(streams.Options{Options: redis.Options{Addresses: o.Addresses, Prefix: "hg", Clock: time.Now}, Logger: slog.New(slog.DiscardHandler)})
	p := policy("", "")
	const n = 200
	for i := range n {
		if _, err := dead.Put(t.Context(), entry(i%5, 1+i/5), &p); err != nil {
			t.Fatal(err)
		}
	}
	read := make(chan struct{}, n)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		dead.Run(ctx, &listener{read: read})
	}()
	for range n {
		<-read
	}
	// As if it had been killed: the leases stay. Run would release them.
	before := server.Do("KEYS", "hg:q:*:l:*")
	cancel()
	<-stopped
	for _, key := range lines(before) {
		server.Do("SET", key, "gone/1", "PX", "500")
	}
	living := node(t, o, "living", b)
	living.Start()
	defer closing(t, living)
	b.await(t, n)
	b.inOrder(t)
	if err := dead.Close(); err != nil {
		t.Error(err)
	}
}

// kept returns the number of entries on a server.
func kept(server *redistest.Server) (n int) {
	for _, key := range lines(server.Do("KEYS", "hg:q:{*}:r")) {
		n += len(lines(server.Do("HKEYS", key))) - 1 // one is permanent
	}
	return n
}

func lines(text string) []string {
	var list []string
	for i, start := 0, 0; i <= len(text); i++ {
		if i == len(text) || text[i] == '\n' {
			if i > start {
				list = append(list, text[start:i])
			}
			start = i + 1
		}
	}
	return list
}

// listener counts the entries it receives.
type listener struct{ read chan struct{} }

func (l *listener) Add(queue.Ref, queue.Attempts) { l.read <- struct{}{} }
func (l *listener) Remove(queue.Ref)              {}
func (l *listener) Forget(string)                 {}
func (l *listener) Busy(string) bool              { return false }
func (l *listener) Count(string) int64            { return 0 }

// A server that writes every command to disk before it answers loses nothing when it is
// killed.
func TestRestartLosesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t, "--appendonly", "yes", "--appendfsync", "always")
	interrupted(t, streams.Options{Options: redis.Options{Addresses: []string{server.Addr}}}, func() {
		server.Kill()
		server.Restart()
	})
}

// Nor does a failover, if a replica has to have each entry.
func TestFailoverLosesNothing(t *testing.T) {
	t.Parallel()
	set := redistest.Sentinel(t, "--appendonly", "yes", "--appendfsync", "always")
	interrupted(t, streams.Options{Options: redis.Options{Addresses: set.Addrs(), MasterName: redistest.MasterName}, Replicas: 1}, func() {
		set.KillPrimary()
		set.AwaitFailover()
	})
}

// interrupted puts entries during an incident, and expects every accepted one to arrive, in
// order, and no other.
func interrupted(t *testing.T, o streams.Options, event func()) {
	t.Helper()
	b := newBackend()
	first, second := node(t, o, "first", b), node(t, o, "second", b)
	first.Start()
	second.Start()
	const keys, each = 8, 120
	var mu sync.Mutex
	accepted, refused := map[string]bool{}, map[string]bool{}
	half := make(chan struct{}, keys)
	var wg sync.WaitGroup
	for key := range keys {
		wg.Go(func() {
			for number := 1; number <= each; number++ {
				e := entry(key, number)
				ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
				_, err := []*queue.Queue{first, second}[number%2].Accept(ctx, e)
				cancel()
				mu.Lock()
				if err == nil {
					accepted[e.URI] = true
				} else {
					refused[e.URI] = true
				}
				mu.Unlock()
				if number == each/2 {
					half <- struct{}{}
				}
			}
		})
	}
	<-half
	event()
	wg.Wait()
	if len(accepted) < keys*each/2 {
		t.Errorf("only %d were accepted", len(accepted))
	}
	awaitAll(t, b, accepted)
	b.inOrder(t)
	closing(t, first)
	closing(t, second)
	b.mu.Lock()
	defer b.mu.Unlock()
	for uri := range refused {
		if b.first[uri] {
			t.Errorf("%s was refused, and sent all the same", uri)
		}
	}
	total := b.by["first"] + b.by["second"]
	if again := total - len(b.first); again > 2*keys*2 {
		t.Errorf("%d entries were sent %d times", len(b.first), total)
	}
	t.Logf("accepted %d, refused %d, arrived %d, sent %d times", len(accepted), len(refused), len(b.first), total)
}

func awaitAll(t *testing.T, b *backend, want map[string]bool) {
	t.Helper()
	timeout := time.After(patience)
	for {
		missing := 0
		b.mu.Lock()
		for uri := range want {
			if !b.first[uri] {
				missing++
			}
		}
		b.mu.Unlock()
		if missing == 0 {
			return
		}
		select {
		case <-b.changed:
		case <-timeout:
			t.Fatalf("%d of %d accepted entries have not arrived", missing, len(want))
		}
	}
}

// An entry whose sender got an error is not sent, even though it was in the queue for a while,
// here because the required replica is missing.
func TestRefusedIsNotSent(t *testing.T) {
	server := redistest.Standalone(t)
	b := newBackend()
	q := node(t, streams.Options{Options: redis.Options{Addresses: []string{server.Addr}}, Replicas: 1}, "only", b)
	q.Start()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := q.Accept(ctx, entry(1, 1)); err == nil {
		t.Fatal("accepted without a replica")
	}
	awaitTrue(t, func() bool { return kept(server) == 0 }) // withdrawn
	closing(t, q)
	if len(b.arrived) > 0 {
		t.Errorf("%v was refused, and sent", b.arrived)
	}
}

// An unconfirmed entry waits until it can no longer be withdrawn, but holds up the others of
// its key only for seconds. Then it is sent, because its process may have died just after it
// confirmed it.
func TestUntoldWaits(t *testing.T) {
	server := redistest.Standalone(t)
	o := streams.Options{Options: redis.Options{Addresses: []string{server.Addr}}}
	b := newBackend()
	accepting := node(t, o, "accepting", b)
	receipt, err := accepting.Accept(t.Context(), entry(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	closing(t, accepting) // waits until it is confirmed
	base := "hg:q:{" + receipt.ID[:12] + "}"
	server.Do("HSET", base+":u", receipt.ID, "1")
	q := node(t, o, "sending", b)
	q.Start()
	defer closing(t, q)
	awaitTrue(t, func() bool { return server.Do("KEYS", base+":l:*") != "" })
	told, err := q.Accept(t.Context(), entry(2, 1))
	if err != nil {
		t.Fatal(err)
	}
	b.await(t, 1)
	if len(b.arrived) != 1 || b.arrived[0] != "/2/1" {
		t.Errorf("arrived: %v, want that of %s alone", b.arrived, told.ID)
	}
	for number := 2; number <= 3; number++ { // they pass it after some seconds
		if _, err := q.Accept(t.Context(), entry(1, number)); err != nil {
			t.Fatal(err)
		}
	}
	b.await(t, 3)
	if got := strings.Join(b.arrived, " "); got != "/2/1 /1/2 /1/3" {
		t.Errorf("arrived: %s", got)
	}
	// As if it were old.
	place := server.Do("HGET", base+":x", receipt.ID)
	_, rest, _ := strings.Cut(place, " ")
	server.Do("HSET", base+":x", receipt.ID, "1-1 "+rest)
	b.await(t, 4)
}

// One key cannot take the space of all others, on whichever node; one entry of each key may
// always wait.
func TestAKeyHasItsShare(t *testing.T) {
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		o := streams.Options{Options: redis.Options{Addresses: []string{server.Addr}, Prefix: "hg", Clock: time.Now}, Logger: slog.New(slog.DiscardHandler)}
		nodes := []*streams.Store{streams.New(o), streams.New(o)}
		p := queue.DefaultPolicy()
		p.MaxEntries, p.MaxBytes, p.KeyShare = 15, 1000, 20
		put := func(key, number, size int) (string, error) {
			e := entry(key, number)
			e.Body = make([]byte, size)
			receipt, err := nodes[number%2].Put(t.Context(), e, &p)
			return receipt.ID, err
		}
		for number := range 3 {
			if _, err := put(1, number, 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := put(1, 4, 0); !errors.Is(err, queue.ErrFull) {
			t.Errorf("more than a fifth of the entries: %v", err)
		}
		large, err := put(2, 1, 500)
		if err != nil {
			t.Errorf("the first of its key: %v", err)
		}
		if _, err := put(2, 2, 0); !errors.Is(err, queue.ErrFull) {
			t.Errorf("more than a fifth of the bytes: %v", err)
		}
		if _, err := nodes[0].Drop(t.Context(), []string{large}); err != nil {
			t.Fatal(err)
		}
		for number := range 2 {
			if _, err := put(2, number, 80); err != nil {
				t.Errorf("there is room again: %v", err)
			}
		}
		if _, err := put(2, 2, 80); !errors.Is(err, queue.ErrFull) {
			t.Errorf("more than a fifth of the bytes: %v", err)
		}
		for _, n := range nodes {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

func awaitTrue(t *testing.T, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for ; !is(); time.Sleep(2 * time.Millisecond) { // asking is work for the machine that is waited for
		if time.Now().After(deadline) {
			t.Fatal("it never became true")
		}
	}
}
