package blocks

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// remote is a store behind a network: it counts calls, takes time and can fail.
type remote struct {
	headgate.Store

	mu    sync.Mutex
	delay time.Duration         // of a round trip
	took  map[headgate.Kind]int // calls by the kind of their first op
	last  []headgate.Op         // of the last call
	down  error
}

func newRemote() *remote {
	return &remote{Store: memory.New(memory.WithClock(time.Now)), delay: time.Millisecond, took: map[headgate.Kind]int{}}
}

func (r *remote) note(ops ...headgate.Op) error {
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

func (r *remote) calls(k headgate.Kind) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.took[k]
}

func (r *remote) Do(ctx context.Context, b *headgate.Batch) {
	b.Each(func(ops []headgate.Op, out []headgate.Decision, mode headgate.Mode) error {
		if err := r.note(ops...); err != nil {
			return err
		}
		defer r.travel()
		return headgate.ExecuteAll(ctx, r.Store, ops, out, mode)
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

var quick = headgate.Blocks{MaxAge: time.Second, MaxOver: 0.1}

func (b *bench) op(kind headgate.Kind, cost int64) headgate.Op {
	return headgate.Op{Key: "k", Scope: "s", Limit: b.limit, Kind: kind, Cost: cost}
}

func (b *bench) do(kind headgate.Kind, cost int64) headgate.Decision {
	b.Helper()
	d, err := headgate.Execute(b.Context(), b.store, b.op(kind, cost))
	if err != nil {
		b.Fatalf("%s %d: %v", kind, cost, err)
	}
	return d
}

// shared is what the store behind has left.
func (b *bench) shared() int64 {
	b.Helper()
	d, err := headgate.Execute(b.Context(), b.remote.Store, b.op(headgate.Peek, 0))
	if err != nil {
		b.Fatal(err)
	}
	return d.Remaining
}

// heat takes until a block is held, and returns how much was taken.
func (b *bench) heat() (taken int64) {
	b.Helper()
	for b.held() == 0 {
		if taken++; !b.do(headgate.Take, 1).Allowed || taken > 1000 {
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
