package blocks

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// all asks for one of every given limit, all or nothing.
func (b *bench) all(limits ...headgate.Limit) (bool, []store.Decision) {
	b.Helper()
	ops, out := make([]store.Op, len(limits)), make([]store.Decision, len(limits))
	for i, l := range limits {
		ops[i] = store.Op{Key: "k", Scope: "s", Rule: l.Rule(), Cost: 1}
		if i > 0 {
			ops[i].Scope = "other"
		}
	}
	if err := store.ExecuteAll(b.Context(), b.store, ops, out, store.AllOrNothing); err != nil {
		b.Fatal(err)
	}
	allowed := true
	for _, d := range out {
		allowed = allowed && d.Allowed
	}
	return allowed, out
}

// total is all calls to the store behind.
func (b *bench) total() (n int) {
	b.remote.mu.Lock()
	defer b.remote.mu.Unlock()
	for _, calls := range b.remote.took {
		n += calls
	}
	return n
}

// TestAllowAllIsLocalIfAllIsHeld: several limits in blocks need no round trip.
func TestAllowAllIsLocalIfAllIsHeld(t *testing.T) {
	in(t, hourly(1_000_000), func(b *bench) {
		minutely := headgate.LimitOf(headgate.PerMinute(1_000_000).Rule().InBlocks(store.Blocks{MaxAge: time.Second, MaxOver: 1}))
		for range 2000 {
			if ok, _ := b.all(b.limit, minutely); !ok {
				t.Fatal("refused")
			}
		}
		before := b.total()
		for range 100 {
			if ok, out := b.all(b.limit, minutely); !ok || out[0].Granted != 1 || out[1].Granted != 1 {
				t.Fatal("refused", out)
			}
		}
		synctest.Wait()
		if n := b.total() - before; n > 4 { // the draws ahead
			t.Errorf("%d calls for 100 requests: %+v", n, b.store.Stats())
		}
	})
}

// TestAllowAllPutsBack: if the rest is refused, what was held is put back.
func TestAllowAllPutsBack(t *testing.T) {
	in(t, hourly(100_000), func(b *bench) {
		taken := b.heat()
		one := headgate.PerHour(1)
		if ok, _ := b.all(b.limit, one); !ok {
			t.Fatal("refused")
		}
		taken++
		time.Sleep(2 * time.Millisecond) // for a draw ahead
		held := b.held()
		for range 5 {
			ok, out := b.all(b.limit, one)
			if ok || out[1].Allowed || !out[0].Allowed || out[0].Granted != 0 {
				t.Fatalf("%+v", out)
			}
		}
		if b.held() != held {
			t.Errorf("%d held, want %d", b.held(), held)
		}
		time.Sleep(2 * time.Second)
		if b.shared() != 100_000-taken {
			t.Errorf("%d left, want %d", b.shared(), 100_000-taken)
		}
	})
}

// TestPeekCoveredHere: what is held answers a peek; otherwise the store adds its own.
func TestPeekCoveredHere(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		taken := b.heat()
		before := b.total()
		if d := b.do(store.KindPeek, 1); !d.Allowed || d.Granted != 0 || b.total() != before {
			t.Errorf("%+v after %d calls", d, b.total()-before)
		}
		if d := b.do(store.KindPeek, 1000-taken); !d.Allowed || b.total() != before+1 {
			t.Errorf("all that is left: %+v", d)
		}
		if d := b.do(store.KindPeek, 1001-taken); d.Allowed {
			t.Errorf("one more: %+v", d)
		}
		if held := b.held(); held+b.shared() != 1000-taken {
			t.Errorf("a peek took something: %d held, %d left", held, b.shared())
		}
	})
}

// TestCostAboveWhatIsHeld: the rest comes from the store, or nothing at all.
func TestCostAboveWhatIsHeld(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		taken := b.heat()
		if d := b.do(store.KindTake, 1001-taken); d.Allowed {
			t.Fatalf("%+v", d)
		}
		if d := b.do(store.KindTake, 1001); d.Allowed || d.Reason != store.ReasonTooLarge {
			t.Errorf("more than the limit: %+v", d)
		}
		if d := b.do(store.KindTakeUpTo, 100); d.Granted != 100 {
			t.Errorf("up to 100: %+v", d)
		}
		taken += 100
		time.Sleep(2 * time.Second)
		if b.shared() != 1000-taken {
			t.Errorf("%d left, want %d", b.shared(), 1000-taken)
		}
		if d := b.do(store.KindTake, 1000-taken); !d.Allowed || d.Granted != 1000-taken {
			t.Errorf("all that is left: %+v", d)
		}
	})
}

// TestRefundOfATakeFromABlock: it is given back to the store, once.
func TestRefundOfATakeFromABlock(t *testing.T) {
	for _, limit := range []headgate.Limit{hourly(1000), headgate.LimitOf(headgate.PerHour(1000).Rule().InBlocks(store.Blocks{MaxAge: time.Second, MaxOver: 1}))} {
		in(t, limit, func(b *bench) {
			b.heat()
			d := b.do(store.KindTake, 1)
			time.Sleep(2 * time.Millisecond) // for a draw ahead
			before := b.shared()
			op := b.op(store.KindRefund, 1)
			op.CountsUntil = d.CountsUntil
			if _, err := store.Execute(b.Context(), b.store, op); err != nil {
				t.Fatal(err)
			}
			if b.shared() != before+1 {
				t.Errorf("%s: %d left, want %d", limit, b.shared(), before+1)
			}
		})
	}
}

// TestChargeIsFeltWhenBlocksEnd: debt stops further draws at once, and the requests of
// this process when its blocks are spent or too old.
func TestChargeIsFeltWhenBlocksEnd(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		b.heat()
		if d := b.do(store.KindCharge, 2000); d.Allowed {
			t.Fatalf("%+v", d)
		}
		time.Sleep(time.Second)
		if d := b.do(store.KindTake, 1); d.Allowed {
			t.Errorf("after its blocks have ended: %+v", d)
		}
	})
}

// TestGrantIsSpentAboveTheLimit: credit is not drawn, but it is spent.
func TestGrantIsSpentAboveTheLimit(t *testing.T) {
	in(t, hourly(100), func(b *bench) {
		for b.do(store.KindTake, 1).Allowed {
		}
		op := b.op(store.KindGrant, 5)
		op.Duration = time.Hour
		if _, err := store.Execute(b.Context(), b.store, op); err != nil {
			t.Fatal(err)
		}
		passed := 0
		for b.do(store.KindTake, 1).Allowed {
			passed++
		}
		if passed != 5 {
			t.Errorf("%d of 5 credits passed", passed)
		}
	})
}

// TestResetEndsBlocks: what was drawn before a reset must not come on top of the new
// limit, neither used nor given back.
func TestResetEndsBlocks(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		b.heat()
		b.do(store.KindReset, 0)
		if b.held() != 0 || b.shared() != 1000 {
			t.Fatalf("%d held, %d left", b.held(), b.shared())
		}
		passed := int64(0)
		for b.do(store.KindTake, 1).Allowed {
			passed++
		}
		if passed != 1000 {
			t.Errorf("%d passed after a reset", passed)
		}
	})
}

// TestReserveGoesToTheStore: a booking is not made from a block.
func TestReserveGoesToTheStore(t *testing.T) {
	in(t, headgate.LimitOf(headgate.PerSecond(100).Rule().InBlocks(store.Blocks{MaxAge: time.Second, MaxOver: 1})), func(b *bench) {
		b.heat()
		before := b.shared()
		op := b.op(store.KindReserve, 3)
		op.Duration = time.Minute
		d, err := store.Execute(b.Context(), b.store, op)
		if err != nil || !d.Allowed || b.remote.calls(store.KindReserve) != 1 || b.shared() > before {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

// TestIndependentBatchIsDivided: what is held is taken here, the rest in one call.
func TestIndependentBatchIsDivided(t *testing.T) {
	in(t, hourly(100_000), func(b *bench) {
		for range 1000 {
			b.do(store.KindTake, 1)
		}
		ops := []store.Op{b.op(store.KindTake, 1), {Key: "cold", Rule: headgate.PerHour(1).Rule(), Cost: 1}, b.op(store.KindTake, 1)}
		out := make([]store.Decision, 3)
		before := b.total() - b.remote.calls(store.KindDraw)
		if err := store.ExecuteAll(context.Background(), b.store, ops, out, store.Independent); err != nil {
			t.Fatal(err)
		}
		if b.total()-b.remote.calls(store.KindDraw) != before+1 || !out[0].Allowed || !out[1].Allowed || !out[2].Allowed || out[1].Limit != 1 {
			t.Errorf("%+v", out)
		}
	})
}

// TestOldWindowsBlocksEndWithIt: the trap of limitador#288 and apisix#13704. What was
// drawn in a window is neither spent nor given back in the next.
func TestOldWindowsBlocksEndWithIt(t *testing.T) {
	in(t, headgate.LimitOf(headgate.PerMinute(1000).WithAlgorithm(store.FixedWindow).Rule().InBlocks(quick)), func(b *bench) {
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute - 50*time.Millisecond)))
		b.heat()
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		passed := int64(0)
		for b.do(store.KindTake, 1).Allowed {
			passed++
		}
		if passed != 1000 {
			t.Errorf("%d passed in the next window", passed)
		}
	})
}

// TestNothingIsHeldAtTheStart: the trap of Scality. A process that starts has drawn
// nothing, and admits nothing that the store has not counted.
func TestNothingIsHeldAtTheStart(t *testing.T) {
	in(t, hourly(10), func(b *bench) {
		for b.do(store.KindTake, 1).Allowed {
		}
		fresh := New(b.remote, Options{})
		defer func() { _ = fresh.Close() }()
		for range 50 {
			if d, err := store.Execute(b.Context(), fresh, b.op(store.KindTake, 1)); err != nil || d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
		}
	})
}

// TestLostAnswerIsNotSentAgain: the traps of deltas that are sent again, or counted
// twice. A draw whose answer got lost has cost its tokens, and that is all.
func TestLostAnswerIsNotSentAgain(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		taken := b.heat()
		for b.held() > 0 {
			if b.do(store.KindTake, 1).Allowed {
				taken++
			}
		}
		b.remote.fail(store.ErrUnavailable)
		draws := b.remote.calls(store.KindDraw)
		for b.held() > 0 {
			b.do(store.KindTake, 1)
		}
		_, err := store.Execute(b.Context(), b.store, b.op(store.KindTake, 1))
		if err == nil || b.remote.calls(store.KindDraw) > draws+1 {
			t.Errorf("%v after %d draws", err, b.remote.calls(store.KindDraw)-draws)
		}
		if s := b.store.Stats()[0]; s.Failed == 0 || s.Lost == 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestUnderCountsWhatIsKept: Under is what this process holds of a key, and what it has
// lost, until that no longer counts.
func TestUnderCountsWhatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, headgate.LimitOf(headgate.Per(1000, time.Minute).WithAlgorithm(store.FixedWindow).Rule().InBlocks(quick)))
		b.heat()
		s := b.store.Stats()[0]
		if s.Under != s.Held || s.Under == 0 || s.Over != 0 {
			t.Errorf("Under is %d, Over is %d, with %d held", s.Under, s.Over, s.Held)
		}
		b.remote.fail(store.ErrUnavailable)
		time.Sleep(time.Second) // idle blocks are given back, which fails
		if lost := b.store.Stats()[0]; lost.Held != 0 || lost.Under < s.Under {
			t.Errorf("Under is %d, with %d lost and %d held", lost.Under, s.Under, lost.Held)
		}
		b.remote.fail(nil)
		time.Sleep(2 * time.Minute)
		if s := b.store.Stats()[0]; s.Under != 0 {
			t.Errorf("Under is %d, after the window has ended", s.Under)
		}
	})
}

// TestUnderIsOfOneKey: what was lost of other keys does not count, nor do draws that were
// not sent, and a limit cannot keep more than it has.
func TestUnderIsOfOneKey(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		c := b.store.counters.forLine(&store.Op{Key: "k", Scope: "s", Rule: b.limit.Rule()})
		lose := func(key string, err error) {
			op := store.Op{Key: key, Scope: "s", Rule: b.limit.Rule()}
			l := newLine(&op, b.store.table.hash(&op), c)
			l.size = 100
			d, _ := l.begin(b.store.now(), 0, 0)
			l.finish(d, b.store.now(), store.Decision{}, err)
		}
		under := func() int64 { return b.store.Stats()[0].Under }
		lose("k", store.ErrNotSent)
		if under() != 0 {
			t.Errorf("Under is %d after a draw that was not sent", under())
		}
		for _, key := range []string{"a", "b", "c"} {
			lose(key, store.ErrUnavailable)
		}
		if lose("a", store.ErrUnavailable); under() != 200 {
			t.Errorf("Under is %d, after one key has lost 200, and others 100", under())
		}
		for range 30 {
			lose("a", store.ErrUnavailable)
		}
		if under() != 1000 {
			t.Errorf("Under is %d of a limit of 1000", under())
		}
		if s := b.store.Stats()[0]; s.Failed != 35 || s.Lost != 3400 {
			t.Errorf("%+v", s)
		}
	})
}

// TestFailedDrawsAreFew: every draw without an answer may cost a block, so while the store
// does not answer, there is one in half a beat.
func TestFailedDrawsAreFew(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		b.heat()
		b.line().drop(b.store.now())
		b.remote.fail(store.ErrUnavailable)
		for range 1000 { // half a millisecond each
			_, _ = store.Execute(b.Context(), b.store, b.op(store.KindTake, 1))
		}
		if s := b.store.Stats()[0]; s.Failed < 2 || s.Failed > 12 {
			t.Errorf("%d draws failed in half a second", s.Failed)
		}
		b.remote.fail(nil)
		if !b.do(store.KindTake, 1).Allowed {
			t.Error("refused, although the store answers again")
		}
	})
}
