package blocks

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// shared is a store that does not close with one of the processes.
type shared struct{ store.Store }

func (shared) Close() error { return nil }

// TestNoOrderAdmitsTooMuch: whatever three processes do at once, while rules are reloaded
// and processes end and start, the limit is admitted, less what Under says. (What a request
// puts back is lost if its block was given back in the meantime.)
func TestNoOrderAdmitsTooMuch(t *testing.T) {
	const limit, processes, callers = 300_000, 3, 4
	inner := shared{memory.New()}
	in, none := hourly(limit), headgate.PerHour(1)
	var stores [processes]atomic.Pointer[Store]
	for i := range stores {
		stores[i].Store(New(inner, Options{Keys: 16}))
	}
	var admitted atomic.Int64
	var work, trouble sync.WaitGroup
	stop := make(chan struct{})
	for i := range processes * callers {
		rng := rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))
		work.Go(func() {
			for refusals := 0; refusals < 200; {
				ops := []store.Op{{Key: "k", Scope: "s", Rule: in.Rule(), Cost: 1 + rng.Int64N(1+rng.Int64N(30))}}
				mode := store.Independent
				switch rng.IntN(8) {
				case 0:
					ops[0].Kind = store.KindTakeUpTo
				case 1: // what is held is put back
					ops = append(ops, store.Op{Key: "none", Rule: none.Rule(), Cost: 1})
					mode = store.AllOrNothing
				case 2:
					ops[0].Kind = store.KindPeek
				}
				out := make([]store.Decision, len(ops))
				s := stores[i%processes].Load()
				var err error
				if len(ops) == 1 && rng.IntN(2) == 0 {
					out[0], err = store.Execute(context.Background(), s, ops[0])
				} else {
					err = store.ExecuteAll(context.Background(), s, ops, out, mode)
				}
				refused := mode == store.AllOrNothing && !out[len(out)-1].Allowed
				switch {
				case err != nil:
					continue // the process has ended
				case !out[0].Allowed:
					refusals++
				case !refused && ops[0].Kind != store.KindPeek:
					admitted.Add(out[0].Granted)
				}
			}
		})
	}
	var ended []*Store
	trouble.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			at := &stores[i%processes]
			if i%40 == 0 {
				old := at.Swap(New(inner, Options{Keys: 16}))
				_ = old.Close()
				ended = append(ended, old)
				continue
			}
			s := at.Load()
			s.Retain(func(string) bool { return false })
			s.Retain(func(string) bool { return true })
		}
	})
	work.Wait()
	close(stop)
	trouble.Wait()
	for i := range stores {
		_ = stores[i].Load().Close()
		ended = append(ended, stores[i].Load())
	}
	under := int64(0)
	for _, s := range ended {
		for _, of := range s.Stats() {
			under += of.Under
		}
	}
	left, err := store.Execute(t.Context(), inner, store.Op{Key: "k", Scope: "s", Rule: in.Rule(), Kind: store.KindPeek})
	if err != nil {
		t.Fatal(err)
	}
	got := admitted.Load() + left.Remaining
	if t.Logf("%d lost, and Under is %d", limit-got, under); got > limit || got+under < limit {
		t.Errorf("%d admitted or left of %d, and Under is %d", got, limit, under)
	}
}
