package blocks

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/store"
)

func only(scopes ...string) func(string) bool {
	return func(scope string) bool { return slices.Contains(scopes, scope) }
}

// TestRetainGivesBack: blocks of a rule that was removed go back at once, not when they
// are no longer busy, and its counters with them.
func TestRetainGivesBack(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		taken := b.heat()
		b.store.Retain(only("another"))
		if list := b.store.Stats(); len(list) != 0 {
			t.Errorf("%+v", list)
		}
		time.Sleep(sweepEvery + 2*time.Millisecond)
		if b.shared() != 1000-taken {
			t.Errorf("%d left, want %d", b.shared(), 1000-taken)
		}
		b.store.Stats()
		if n := len(b.store.counters.all); n != 0 {
			t.Errorf("%d counters are kept", n)
		}
		for range 20 { // requests that began before the reload are still decided
			if taken++; !b.do(store.KindTake, 1).Allowed {
				t.Fatal("refused")
			}
		}
		if list := b.store.Stats(); len(list) != 0 {
			t.Errorf("listed again: %+v", list)
		}
		b.store.Retain(only("s"))
		b.heat()
		if list := b.store.Stats(); len(list) != 1 || list[0].Keys != 1 {
			t.Errorf("a rule that came back: %+v", list)
		}
	})
}

// TestRetainWhileDrawing: what arrives after the rule was removed goes back too.
func TestRetainWhileDrawing(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		for range hotAfter {
			b.do(store.KindTake, 1)
		}
		b.store.Forget(b.op(store.KindTake, 0))
		before := b.shared()
		b.remote.slow(200 * time.Millisecond)
		answered := make(chan bool)
		go func() { answered <- b.do(store.KindTake, 1).Allowed }()
		time.Sleep(10 * time.Millisecond)
		b.store.Retain(only())
		if !<-answered {
			t.Error("refused")
		}
		time.Sleep(time.Second)
		if got := b.shared(); got != before-1 {
			t.Errorf("%d left, want %d", got, before-1)
		}
		if keys := b.store.table.lines.Load(); keys != 0 {
			t.Errorf("%d lines", keys)
		}
	})
}

// TestLossesOutliveTheRule: what was lost counts at the store even if the rule is removed
// and comes back, so the bound must know it.
func TestLossesOutliveTheRule(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		b.heat()
		b.remote.fail(errors.New("no answer"))
		for range 100 {
			_, _ = store.Execute(context.Background(), b.store, b.op(store.KindTake, 1))
		}
		time.Sleep(2 * time.Second)
		b.remote.fail(nil)
		was := b.store.Stats()[0].Under
		b.store.Retain(only())
		time.Sleep(time.Second)
		b.store.Retain(only("s"))
		if list := b.store.Stats(); was == 0 || len(list) != 1 || list[0].Under != was {
			t.Errorf("%+v, want a bound of %d", list, was)
		}
		b.store.Retain(only())
		time.Sleep(2 * time.Hour)
		b.store.Stats()
		if n := len(b.store.counters.all); n != 0 {
			t.Errorf("%d counters are kept after the window", n)
		}
	})
}

// TestEveryTokenIsCountedOnce: as admitted here, or by the store.
func TestEveryTokenIsCountedOnce(t *testing.T) {
	in(t, hourly(100_000), func(b *bench) {
		var taken int64
		for i := range 300 {
			d := b.do(store.KindTake, int64(1+i%3))
			taken += d.Granted
			if i%50 == 0 {
				time.Sleep(time.Second)
			}
		}
		ops, out := []store.Op{b.op(store.KindTake, 2), b.op(store.KindPeek, 1)}, make([]store.Decision, 2)
		if err := store.ExecuteAll(b.Context(), b.store, ops, out, store.AllOrNothing); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s := b.store.Stats()[0]
		if taken += 2; s.Admitted+s.Direct != taken || s.Admitted == 0 || s.Direct < hotAfter {
			t.Errorf("%d here and %d by the store, of %d", s.Admitted, s.Direct, taken)
		}
	})
}

// TestForgetIsOfOneKey: a reset elsewhere ends the blocks of that key alone, and nothing
// that was drawn before is used after it.
func TestForgetIsOfOneKey(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		b.heat()
		other := b.op(store.KindTake, 1)
		other.Key = "other"
		for range 20 {
			if _, err := store.Execute(b.Context(), b.store, other); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Millisecond) // for a draw ahead
		before := b.held()
		node := New(b.remote, Options{Keys: 64})
		defer func() { _ = node.Close() }()
		if _, err := store.Execute(b.Context(), node, b.op(store.KindReset, 0)); err != nil {
			t.Fatal(err)
		}
		b.store.Forget(b.op(store.KindTake, 0))
		if held := b.held(); held == 0 || held >= before {
			t.Errorf("%d held of %d", held, before)
		}
		admitted := 0
		for b.do(store.KindTake, 1).Allowed {
			admitted++
		}
		if admitted != 1000 {
			t.Errorf("%d admitted after the reset, want 1000", admitted)
		}
	})
}
