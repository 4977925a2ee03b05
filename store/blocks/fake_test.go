package blocks

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// remote is a store behind a network: it counts calls, takes time and can fail.
type remote struct {
	store.Store

	mu    sync.Mutex
	delay time.Duration      // of a round trip
	took  map[store.Kind]int // calls by the kind of their first op
	last  []store.Op         // of the last call
	down  error
}

func newRemote() *remote {
	return &remote{Store: memory.New(memory.WithClock(time.Now)), delay: time.Millisecond, took: map[store.Kind]int{}}
}

func (r *remote) note(ops ...store.Op) error {
	r.travel()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took[ops[0].Kind]++
	r.last = ops
	return r.down
}

// Close leaves the store open, so that tests can look at what was returned.
func (*remote) Close() error { return nil }

// travel is half a round trip.
func (r *remote) travel() {
	r.mu.Lock()
	delay := r.delay
	r.mu.Unlock()
	time.Sleep(delay / 2)
}

func (r *remote) slow(delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = delay
}

func (r *remote) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = err
}

func (r *remote) calls(k store.Kind) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.took[k]
}

func (r *remote) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		if err := r.note(ops...); err != nil {
			return err
		}
		defer r.travel()
		return store.ExecuteAll(ctx, r.Store, ops, out, mode)
	})
}

// bench is a Store over a remote one, in a bubble of testing/synctest.
type bench struct {
	*testing.T
	remote *remote
	store  *Store
	limit  headgate.Limit
}

func newBench(t *testing.T, limit headgate.Limit) *bench {
	t.Helper()
	b := &bench{T: t, remote: newRemote(), limit: limit}
	b.store = New(b.remote, Options{Keys: 64})
	t.Cleanup(func() { _ = b.store.Close() })
	return b
}

var quick = store.Blocks{MaxAge: time.Second, MaxOver: 0.1}

func (b *bench) op(kind store.Kind, cost int64) store.Op {
	return store.Op{Key: "k", Scope: "s", Rule: b.limit.Rule(), Kind: kind, Cost: cost}
}

func (b *bench) do(kind store.Kind, cost int64) store.Decision {
	b.Helper()
	d, err := store.Execute(b.Context(), b.store, b.op(kind, cost))
	if err != nil {
		b.Fatalf("%s %d: %v", kind, cost, err)
	}
	return d
}

// shared is what the store behind has left.
func (b *bench) shared() int64 {
	b.Helper()
	d, err := store.Execute(b.Context(), b.remote.Store, b.op(store.KindPeek, 0))
	if err != nil {
		b.Fatal(err)
	}
	return d.Remaining
}

// heat takes until a block is held, and returns how much was taken.
func (b *bench) heat() (taken int64) {
	b.Helper()
	for b.held() == 0 {
		if taken++; !b.do(store.KindTake, 1).Allowed || taken > 1000 {
			b.Fatalf("no block after %d", taken)
		}
	}
	time.Sleep(2 * time.Millisecond) // for a draw ahead
	return taken
}

func (b *bench) held() (held int64) {
	for _, s := range b.store.Stats() {
		held += s.Held
	}
	return held
}
