//go:build !race

// The stores of this repository run the same suite with the race detector; this is its model behind a lock.

package storetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// reference is the model behind a lock: the simplest conforming store.
type reference struct {
	mu     sync.Mutex
	model  *model
	closed bool
	now    func() int64
	// forgets reports whether the store removes a state that it may forget.
	forgets func() bool
}

func (r *reference) Do(_ context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.closed {
			return store.ErrClosed
		}
		nows := make([]int64, len(ops))
		for i := range ops {
			if err := ops[i].Validate(); err != nil {
				return err
			}
			if nows[i] = ops[i].At; nows[i] == 0 {
				nows[i] = r.now()
			}
		}
		for key, e := range r.model.states {
			if e.freshAt <= max(r.model.latest, slices.Max(append(nows, 0))) && r.forgets != nil && r.forgets() {
				delete(r.model.states, key)
			}
		}
		r.model.do(ops, nows, out, mode)
		return nil
	})
}

func (r *reference) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return nil
}

// TestReference: the suite accepts a store that conforms.
func TestReference(t *testing.T) {
	Run(t, Harness{Open: func(*testing.T) store.Store { return &reference{model: newModel()} }})
}

// TestStoresThatForget: the differential cases accept a store whenever it forgets what it
// may. Others set the clock back to see what is left, far before what the store has seen.
func TestStoresThatForget(t *testing.T) {
	for name, forgets := range map[string]func() bool{
		"always":    func() bool { return true },
		"sometimes": func() bool { return rand.IntN(8) == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			open := func(*testing.T) store.Store { return &reference{model: newModel(), forgets: forgets} }
			for range 5 {
				for _, c := range differentialCases() {
					t.Run(c.name, func(t *testing.T) {
						c.run(&session{T: t, store: open(t), model: newModel()})
					})
				}
			}
		})
	}
}

// TestIsClear: which requests all stores answer alike depends on what they may have
// forgotten, also if the key has been used again since.
func TestIsClear(t *testing.T) {
	lenient := headgate.PerMinute(100).WithAlgorithm(store.SlidingBuckets).WithBuckets(7, store.EdgeLenient).WithName("n")
	weighted := headgate.PerMinute(100).WithAlgorithm(store.SlidingBuckets).WithName("n")
	m := newModel()
	first := kind(cost(at(0, lenient), 519), store.KindCharge)
	m.take(&first, first.At)
	end := m.entry(&first).freshAt - t0
	check := func(op store.Op, want bool) {
		t.Helper()
		other := key(op, "other")
		if got := m.isClear([]store.Op{other, op}, store.AllOrNothing); got != want {
			t.Errorf("%s: clear %t, want %t", describe(&op, op.At), got, want)
		}
	}
	check(at(end-1, weighted), true)
	check(at(end, lenient), true)
	check(at(end, weighted), false)
	again := at(end, lenient)
	m.take(&again, again.At)
	check(at(end-1, lenient), false)
	check(at(end, lenient), true)
	check(at(end, weighted), false)
	check(kind(at(end, weighted), store.KindReset), true)
	reset := kind(at(end, weighted), store.KindReset)
	m.take(&reset, reset.At)
	check(at(end-1, weighted), true)
	if m.unclear {
		t.Error("a request so far was not clear")
	}
}

// TestReferenceWithItsOwnClock: the suite also accepts one that ignores Op.At.
func TestReferenceWithItsOwnClock(t *testing.T) {
	var now int64
	clock := func() int64 { return now }
	Run(t, Harness{
		Open: func(*testing.T) store.Store {
			now = t0
			return &reference{model: newModel(), now: clock}
		},
		Now:     clock,
		Advance: func(d time.Duration) { now += int64(d / time.Microsecond) },
	})
}
