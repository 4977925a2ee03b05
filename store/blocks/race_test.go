package blocks

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// shared is a store that does not close with one of the processes.
type shared struct{ headgate.Store }

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
				ops := []headgate.Op{{Key: "k", Scope: "s", Limit: in, Cost: 1 + rng.Int64N(1+rng.Int64N(30))}}
				mode := headgate.Independent
				switch rng.IntN(8) {
				case 0:
					ops[0].Kind = headgate.TakeUpTo
				case 1: // what is held is put back
					ops = append(ops, headgate.Op{Key: "none", Limit: none, Cost: 1})
					mode = headgate.AllOrNothing
				case 2:
					ops[0].Kind = headgate.Peek
				}
				out := make([]headgate.Decision, len(ops))
				s := stores[i%processes].Load()
				var err error
				if len(ops) == 1 && rng.IntN(2) == 0 {
					out[0], err = headgate.Execute(context.Background(), s, ops[0])
				} else {
					err = headgate.ExecuteAll(context.Background(), s, ops, out, mode)
				}
				refused := mode == headgate.AllOrNothing && !out[len(out)-1].Allowed
				switch {
				case err != nil:
					continue // the process has ended
				case !out[0].Allowed:
					refusals++
				case !refused && ops[0].Kind != headgate.Peek:
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
	left, err := headgate.Execute(t.Context(), inner, headgate.Op{Key: "k", Scope: "s", Limit: in, Kind: headgate.Peek})
	if err != nil {
		t.Fatal(err)
	}
	got := admitted.Load() + left.Remaining
	if t.Logf("%d lost, and Under is %d", limit-got, under); got > limit || got+under < limit {
		t.Errorf("%d admitted or left of %d, and Under is %d", got, limit, under)
	}
}
