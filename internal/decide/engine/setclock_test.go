package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// timed is a store that, like Redis, uses its own clock only.
type timed struct {
	*memory.Store
	now time.Time
}

func newTimed() *timed {
	s := &timed{now: time.UnixMicro(start)}
	s.Store = memory.New(memory.WithClock(func() time.Time { return s.now }))
	return s
}

func (s *timed) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		own := append([]store.Op(nil), ops...)
		for i := range own {
			own[i].At = 0
		}
		return store.ExecuteAll(ctx, s.Store, own, out, mode)
	})
}

const setClockRules = `
domain: api
limits:
  - {name: log, match: {path: /log}, key: [user], rate: 8/minute, algorithm: sliding_log, cost: {estimate: 2, from_response: X-Cost}}
`

// TestRefundsAfterTheStoresClockWasSet: one second after a take, the store's clock has
// been set and another has taken. The refund finds the take, or that it no longer counts.
func TestRefundsAfterTheStoresClockWasSet(t *testing.T) {
	end := map[string]func(t *testing.T, e *engine.Engine) func() error{
		"cancel": func(t *testing.T, e *engine.Engine) func() error {
			_, token, err := e.Reserve(t.Context(), query1("/log", 0), 5*time.Minute)
			if err != nil || token == "" {
				t.Fatal(token, err)
			}
			return func() error {
				_, err := e.Cancel(t.Context(), token, at(1))
				return err
			}
		},
		"cost": func(t *testing.T, e *engine.Engine) func() error {
			v := decide(t, e, query1("/log", 0))
			return func() error {
				defer v.Release()
				return e.SettleCosts(t.Context(), &v, at(1), told(0, engine.CostKnown))
			}
		},
		"undo": func(t *testing.T, e *engine.Engine) func() error {
			v := decide(t, e, query1("/log", 0))
			return func() error {
				defer v.Release()
				return e.Refund(t.Context(), &v, at(1))
			}
		},
	}
	for name, end := range end {
		for by, want := range map[time.Duration]int64{
			time.Second: 4, 50 * time.Second: 4, 70 * time.Second: 4, time.Hour: 4, -50 * time.Second: 4,
		} {
			store := newTimed()
			e := engine.New(store, parse(t, setClockRules))
			giveBack := end(t, e)
			store.now = store.now.Add(by)
			for range 2 { // others, each with the estimate of 2
				v := decide(t, e, query1("/log", 1))
				v.Release()
				store.now = store.now.Add(time.Second)
			}
			if err := giveBack(); err != nil {
				t.Fatal(err)
			}
			if n := left(t, e, "/log", "log", 1); n != want {
				t.Errorf("%s, the clock set by %s: %d left, want %d", name, by, n, want)
			}
		}
	}
}
