package streams_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/queue/streams"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// While the slot of a queue moves to another node, the queue accepts and sends as long as its
// keys are together on either node, and waits while they are apart.
func TestMovedSlotLosesNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts six servers")
	}
	for replicas := range 2 {
		t.Run(fmt.Sprintf("%d replicas", replicas), func(t *testing.T) {
			t.Parallel()
			m := newMoving(t, replicas)
			for range 10 {
				m.accept(20)
			}
			m.b.await(t, m.accepted)
			m.die()
			owner := primaryOfQueue(t, m.set)
			from, to := m.set.Primaries[owner], m.set.Primaries[(owner+1)%len(m.set.Primaries)]
			m.move(from, to, true)
			m.move(to, from, false)
			m.check(from)
		})
	}
}

// moving is two processes with a queue whose slot is moved.
type moving struct {
	*testing.T
	set      *redistest.ClusterSet
	store    *streams.Store // an operator's
	nodes    []*queue.Queue
	b        *backend
	accepted int
	base     string
	ids      []string
	dead     []string
}

func newMoving(t *testing.T, replicas int) *moving {
	t.Helper()
	m := &moving{T: t, set: redistest.Cluster(t), b: newBackend()}
	o := streams.Options{
		Options:  redis.Options{Addresses: m.set.Addrs(), Mode: redis.Cluster, Prefix: "hg", Clock: time.Now},
		Replicas: replicas, Logger: slog.New(slog.DiscardHandler),
	}
	m.store = streams.New(o)
	t.Cleanup(func() { _ = m.store.Close() })
	for _, name := range []string{"first", "second"} {
		q := queue.New(queue.Options{
			Store: streams.New(o), Clock: time.Now, Logger: o.Logger, Random: func(int64) int64 { return 0 },
			Policy: func(domain, rule string) queue.Policy {
				p := policy(domain, rule)
				p.Retries = 0
				return p
			},
			Take: func(context.Context, *queue.Ref, time.Time) (queue.Permit, error) {
				return queue.Permit{Allowed: true}, nil
			},
			Send: func(_ context.Context, e *queue.Entry, _ int64) (queue.Answer, error) {
				if strings.HasPrefix(e.URI, "/0/") {
					return queue.Answer{Status: http.StatusBadGateway}, nil
				}
				m.b.take(name, e)
				return queue.Answer{Status: http.StatusOK}, nil
			},
		})
		q.Start()
		m.nodes = append(m.nodes, q)
	}
	return m
}

// begin accepts n entries in the background, and reports when it has. With an idempotency key
// they are one.
func (m *moving) begin(n int, key string) <-chan error {
	done := make(chan error, 1)
	go func() {
		for range n {
			m.accepted++
			e := entry(m.accepted%20+1, m.accepted)
			if e.IdempotencyKey = key; key != "" {
				e.Key, e.URI = key, fmt.Sprintf("/%d/1", 20+m.accepted)
			}
			receipt, err := m.nodes[m.accepted%2].Accept(m.Context(), e)
			if err != nil {
				done <- err
				return
			}
			m.base, m.ids = "hg:q:{"+receipt.ID[:12]+"}", append(m.ids, receipt.ID)
		}
		done <- nil
	}()
	return done
}

// accept accepts n entries.
func (m *moving) accept(n int) {
	m.Helper()
	m.ends(m.begin(n, ""))
}

func (m *moving) ends(done <-chan error) {
	m.Helper()
	if err := <-done; err != nil {
		m.Fatal(err)
	}
}

// die lets an entry become a dead letter.
func (m *moving) die() {
	m.Helper()
	receipt, err := m.nodes[0].Accept(m.Context(), entry(0, len(m.dead)))
	if err != nil {
		m.Fatal(err)
	}
	m.dead = append(m.dead, receipt.ID)
	m.becomes(receipt.ID, queue.Dead)
}

func (m *moving) becomes(id string, state queue.State) {
	m.Helper()
	awaitTrue(m.T, func() bool {
		item, err := m.store.Find(m.Context(), id)
		return err == nil && item.State == state
	})
}

// works accepts and sends while all keys are on one side of a moving slot.
func (m *moving) works() {
	m.Helper()
	m.accept(20)
	m.b.await(m.T, m.accepted)
	m.die()
	retried, err := m.store.Retry(m.Context(), m.dead[:1], time.Now(), func(string, string) time.Duration { return time.Hour })
	if err != nil || len(retried) != 1 {
		m.Errorf("retried: %v, %v", retried, err)
	}
	m.becomes(m.dead[0], queue.Dead)
	if depths, err := m.store.Depths(m.Context()); err != nil || depths[0].Dead != int64(len(m.dead)) {
		m.Errorf("%+v, %v, want %d dead letters", depths, err, len(m.dead))
	}
}

// waits fails if an entry is accepted.
func (m *moving) waits(key string) {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.Context(), 200*time.Millisecond)
	defer cancel()
	e, p := entry(99, 1), policy("", "")
	e.IdempotencyKey = key
	if _, err := m.store.Put(ctx, e, &p); err == nil {
		m.Error("accepted while the keys are apart")
	}
}

// move moves the slot from one primary to another, key by key, the results before
// all others or after them.
func (m *moving) move(from, to *redistest.Server, resultsFirst bool) {
	m.Helper()
	slot := strconv.Itoa(m.set.Slot(m.base))
	setslot := func(p *redistest.Server, state ...string) {
		p.Do(append([]string{"CLUSTER", "SETSLOT", slot}, state...)...)
	}
	migrate := func(keys []string) {
		for _, key := range keys {
			from.Do("MIGRATE", "127.0.0.1", strconv.Itoa(to.Port), "", "0", "5000", "KEYS", key)
		}
	}
	there := func() (results, others []string) {
		for _, key := range lines(from.Do("CLUSTER", "GETKEYSINSLOT", slot, "100000")) {
			if strings.Contains(key, ":d:") {
				results = append(results, key)
			} else {
				others = append(others, key)
			}
		}
		return results, others
	}
	toID := to.Do("CLUSTER", "MYID")
	setslot(to, "IMPORTING", from.Do("CLUSTER", "MYID"))
	setslot(from, "MIGRATING", toID)
	m.works()
	results, others := there()
	if resultsFirst {
		migrate(results)
		m.works()
	}
	migrate(others[:len(others)/2])
	late := m.begin(10, "")
	m.waits("")
	migrate(others[len(others)/2:])
	m.ends(late)
	m.works()
	for results, others = there(); len(results)+len(others) > 0; results, others = there() {
		migrate(append(others, results...))
	}
	m.works()
	m.b.await(m.T, m.accepted)
	late = m.begin(1, "once, to "+toID)
	m.waits("another")
	for _, p := range append([]*redistest.Server{to, from}, m.set.Primaries...) {
		setslot(p, "NODE", toID)
	}
	m.ends(late)
	m.works()
}

// check looks for entries that were lost or left over.
func (m *moving) check(owner *redistest.Server) {
	m.Helper()
	m.b.await(m.T, m.accepted)
	for _, id := range m.ids {
		m.becomes(id, queue.Delivered)
	}
	if depths, err := m.store.Depths(m.Context()); err != nil || depths[0].Entries != 0 || depths[0].Bytes != 0 || depths[0].Dead != int64(len(m.dead)) {
		m.Errorf("%+v, %v, want %d dead letters", depths, err, len(m.dead))
	}
	for _, hash := range []string{":w", ":v", ":s", ":u"} {
		awaitTrue(m.T, func() bool { return owner.Do("HKEYS", m.base+hash) == "-" })
	}
	for _, q := range m.nodes {
		closing(m.T, q)
	}
	m.b.inOrder(m.T)
	if n := m.b.by["first"] + m.b.by["second"]; n != m.accepted {
		m.Errorf("%d were sent, of %d", n, m.accepted)
	}
	for _, p := range m.set.Primaries {
		if p != owner && p.Do("CLUSTER", "COUNTKEYSINSLOT", strconv.Itoa(m.set.Slot(m.base))) != "0" {
			m.Errorf("%s has keys", p.Addr)
		}
	}
}
