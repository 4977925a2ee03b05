package blocks

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// TestWaitersJoinOneDraw: callers that find nothing wait for the same draw.
func TestWaitersJoinOneDraw(t *testing.T) {
	in(t, hourly(100_000), func(b *bench) {
		b.heat()
		for b.held() > 0 {
			b.store.Forget(b.op(store.KindTake, 0))
		}
		before := b.remote.calls(store.KindDraw)
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() { b.do(store.KindTake, 1) })
		}
		callers.Wait()
		synctest.Wait()
		if got := b.remote.calls(store.KindDraw) - before; got > 2 { // one, and perhaps one ahead
			t.Errorf("%d draws for 8 callers", got)
		}
	})
}

// TestRefusalsOfADrawAreShared: 50 callers of an exhausted key are one draw.
func TestRefusalsOfADrawAreShared(t *testing.T) {
	in(t, hourly(100), func(b *bench) {
		for b.do(store.KindTake, 1).Allowed {
		}
		before := b.remote.calls(store.KindDraw)
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				if d := b.do(store.KindTake, 1); d.Allowed || d.RetryAfter <= 0 || d.Limit != 100 {
					t.Errorf("%+v", d)
				}
			})
		}
		callers.Wait()
		if got := b.remote.calls(store.KindDraw) - before; got != 1 {
			t.Errorf("%d draws", got)
		}
	})
}

// TestCallerLeavesADraw: a caller's deadline holds, whatever others wait for.
func TestCallerLeavesADraw(t *testing.T) {
	in(t, hourly(100_000), func(b *bench) {
		b.heat()
		b.remote.slow(time.Minute)
		ctx, cancel := context.WithTimeout(b.Context(), time.Millisecond)
		defer cancel()
		for {
			_, err := store.Execute(ctx, b.store, b.op(store.KindTake, 1))
			if err != nil {
				if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				break
			}
		}
		b.remote.slow(0)
		time.Sleep(2 * time.Minute)
	})
}

// TestWhoHangsUpIsCounted: a caller that is gone waits for a draw like others, and gets the
// limit's answer, not that of an outage.
func TestWhoHangsUpIsCounted(t *testing.T) {
	in(t, hourly(60), func(b *bench) {
		b.remote.slow(20 * time.Millisecond)
		gone, cancel := context.WithCancel(b.Context())
		cancel()
		var admitted atomic.Int64
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() {
				for range 10 {
					d, err := store.Execute(gone, b.store, b.op(store.KindTake, 1))
					if err != nil {
						t.Error(err)
					}
					if d.Allowed {
						admitted.Add(1)
					}
				}
			})
		}
		callers.Wait()
		if n := admitted.Load(); n != 60 {
			t.Errorf("admitted %d of 60", n)
		}
	})
}

// TestWaitersGetWhatTheyNeed: who waits for a draw of a store far away waits for the one in
// progress and one that asks for enough, not for a third.
func TestWaitersGetWhatTheyNeed(t *testing.T) {
	const trip = 40 * time.Millisecond
	for name, limit := range map[string]headgate.Limit{
		"bucket": headgate.PerSecond(400).WithBurst(400),
		"window": headgate.PerMinute(1000).WithAlgorithm(store.SlidingWindow),
	} {
		t.Run(name, func(t *testing.T) {
			in(t, headgate.LimitOf(limit.Rule().InBlocks(store.Blocks{MaxAge: time.Second, MaxOver: 0.05})), func(b *bench) {
				b.remote.slow(trip)
				var longest atomic.Int64
				var callers sync.WaitGroup
				for range 16 {
					callers.Go(func() {
						for range 30 {
							began := time.Now()
							if d := b.do(store.KindTake, 1); !d.Allowed {
								t.Errorf("refused: %+v", d)
							}
							longest.Store(max(longest.Load(), int64(time.Since(began))))
							time.Sleep(trip*3/8 + 137*time.Microsecond)
						}
					})
				}
				callers.Wait()
				if got := time.Duration(longest.Load()); got > 2*trip {
					t.Errorf("one waited for %v, want at most two round trips of %v", got, trip)
				}
			})
		})
	}
}

// TestAStoreFurtherAwayThanABlockIsKept: draws that arrive too late are not tried by every
// request. The store decides, in one round trip, and hardly anything of the limit is lost.
func TestAStoreFurtherAwayThanABlockIsKept(t *testing.T) {
	const trip, callers, each = 80 * time.Millisecond, 16, 100
	limit := headgate.PerSecond(10_000)
	in(t, headgate.LimitOf(limit.Rule().InBlocks(store.Blocks{MaxAge: time.Second, MaxOver: 0.005})), func(b *bench) {
		b.remote.slow(trip)
		var late atomic.Int64
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range each {
					began := time.Now()
					if d := b.do(store.KindTake, 1); !d.Allowed {
						t.Errorf("refused: %+v", d)
					}
					if time.Since(began) > trip {
						late.Add(1)
					}
				}
			})
		}
		all.Wait()
		if n := late.Load(); n > callers*each/8 {
			t.Errorf("%d of %d requests waited for more than a round trip", n, callers*each)
		}
		if n := b.remote.calls(store.KindDraw); n > 20 {
			t.Errorf("%d draws in %d seconds", n, each*trip/time.Second)
		}
	})
}

// TestAWindowsEndIsNoDistance: a draw that arrives after the window it was made in is too
// late because of the window, not of the way: the next one is for the new window. Requests
// wait for at most both, and do not each ask a store that is far away.
func TestAWindowsEndIsNoDistance(t *testing.T) {
	const trip, every, window = 160 * time.Millisecond, time.Millisecond, 10 * time.Second
	const windows = 20
	limit := headgate.Per(100_000, window).WithAlgorithm(store.FixedWindow)
	in(t, headgate.LimitOf(limit.Rule().InBlocks(store.Blocks{MaxAge: time.Second, MaxOver: 0.05})), func(b *bench) {
		b.remote.slow(trip)
		var late atomic.Int64
		var all sync.WaitGroup
		send := func(long time.Duration) {
			for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(every) {
				all.Go(func() {
					began := time.Now()
					if d := b.do(store.KindTake, 1); !d.Allowed {
						t.Errorf("refused: %+v", d)
					}
					if time.Since(began) > 2*trip {
						late.Add(1)
					}
				})
			}
		}
		send(2 * time.Second)
		before := b.remote.calls(store.KindTake)
		for range windows {
			send(window + 17*time.Millisecond) // draws meet the window's end at each distance
		}
		all.Wait()
		// One that comes just when a draw arrives may take what somebody had waited for.
		if n := b.remote.calls(store.KindTake) - before; n > windows {
			t.Errorf("%d requests asked the store, in %d windows", n, windows)
		}
		if n := late.Load(); n > windows {
			t.Errorf("%d requests waited for more than two round trips", n)
		}
	})
}
