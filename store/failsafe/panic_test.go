package failsafe_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/failsafe"
	"github.com/headgate/headgate/store/memory"
)

// TestPanicIsAFailure: a panic of the store is a failure, in whatever goroutine; it
// ends neither the process nor the breaker's counting.
func TestPanicIsAFailure(t *testing.T) {
	t.Parallel()
	for name, deaf := range map[string]bool{"on the caller's goroutine": false, "on one of ours": true} {
		f := &fake{}
		s := failsafe.New(f, failsafe.Options{
			IgnoresContext: deaf, Timeout: time.Minute,
			Breaker: failsafe.Breaker{Failures: 1000},
		})
		if _, err := store.Execute(t.Context(), s, op("k")); err != nil { // from now on it is trusted
			t.Fatal(err)
		}
		f.set(func(f *fake) { f.answer = func(store.Op) (store.Decision, error) { panic("no map") } })
		for i := range 3 {
			_, err := store.Execute(t.Context(), s, op("k"))
			batch := store.ExecuteAll(t.Context(), s, []store.Op{op("k")}, make([]store.Decision, 1), store.AllOrNothing)
			groups := []store.Group{{Ops: 1}}
			s.Do(t.Context(), &store.Batch{Ops: []store.Op{op("k")}, Out: make([]store.Decision, 1), Groups: groups})
			for _, err := range []error{err, batch, groups[0].Err} {
				if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "panic: no map") {
					t.Errorf("%s, call %d: %v", name, i, err)
				}
			}
		}
		if stats := s.Stats(); stats.Failures != 9 || stats.Stuck != 0 {
			t.Errorf("%s: %+v", name, stats)
		}
		f.set(func(f *fake) { f.answer = nil })
		if _, err := store.Execute(t.Context(), s, op("k")); err != nil {
			t.Errorf("%s, afterwards: %v", name, err)
		}
	}
}

// TestNoInnerStore: a Store without an inner store refuses under every policy, and
// whatever is built on it reports that.
func TestNoInnerStore(t *testing.T) {
	t.Parallel()
	var none *memory.Store
	var nothing *failsafe.Store
	for name, inner := range map[string]store.Store{
		"nil": nil, "a nil pointer": none, "a Store around nil": failsafe.New(nil, failsafe.Options{}), "no Store": nothing,
	} {
		s := failsafe.New(inner, failsafe.Options{})
		l := headgate.New(s, headgate.WithFallback(memory.New(), 1))
		if err := l.Validate(); !errors.Is(err, store.ErrNoStore) {
			t.Errorf("%s: Validate says %v", name, err)
		}
		d, err := l.Allow(t.Context(), "k", headgate.PerSecond(1))
		if !errors.Is(err, store.ErrNoStore) || d.Allowed {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
		ops, out := []store.Op{op("k")}, make([]store.Decision, 1)
		if d, err := l.Caller().AllowAll(t.Context(), ops, out); !errors.Is(err, store.ErrNoStore) || d.Allowed {
			t.Errorf("%s, AllowAll: %+v, %v", name, d, err)
		}
		groups := []store.Group{{Ops: 1}}
		s.Do(t.Context(), &store.Batch{Ops: ops, Out: out, Groups: groups})
		if !errors.Is(groups[0].Err, store.ErrNoStore) {
			t.Errorf("%s, Pipeline: %v", name, groups[0].Err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: Close says %v", name, err)
		}
	}
}
