package blocks

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// TestARetiredBlockIsOver: a request that found a block just before it is given back gets
// nothing from it, and cannot put anything back into it.
func TestARetiredBlockIsOver(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		b.heat()
		found, now := b.line().current.Load(), b.store.now()
		b.line().end(now)
		if found.take(now, 1) >= 0 || found.takeUpTo(now, 5) != 0 || found.has(now) != 0 || found.refund(1) {
			t.Error("it is still used")
		}
	})
}

// TestLostTokensCountForARefill: what is lost of a bucket is missing until as much has been
// refilled as it holds, if others take the rest.
func TestLostTokensCountForARefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, headgate.LimitOf(headgate.PerSecond(10).WithBurst(100).Rule().InBlocks(store.Blocks{MaxAge: time.Second, MaxOver: 1})))
		b.heat()
		b.remote.fail(store.ErrUnavailable)
		time.Sleep(2 * time.Second)
		lost := b.store.Stats()[0].Under
		if lost == 0 {
			t.Fatal("nothing was lost")
		}
		b.remote.fail(nil)
		for range 6 {
			b.do(store.KindTakeUpTo, 100)
			time.Sleep(time.Second)
		}
		if under := b.store.Stats()[0].Under; under != lost {
			t.Errorf("Under is %d after 8 of 10 seconds, want %d", under, lost)
		}
		time.Sleep(5 * time.Second)
		if under := b.store.Stats()[0].Under; under != 0 {
			t.Errorf("Under is %d after a refill", under)
		}
	})
}

// TestExtremeLimits: the largest and the smallest limits, and costs of 0 and above all that
// is held, admit exactly what the limit has.
func TestExtremeLimits(t *testing.T) {
	const most = store.MaxLimit
	for _, base := range []headgate.Limit{
		headgate.PerHour(1), headgate.PerHour(2), headgate.PerHour(9), headgate.Per(most, 365*24*time.Hour), headgate.PerHour(most), headgate.PerSecond(most),
	} {
		for _, algorithm := range []store.Algorithm{store.TokenBucket, store.FixedWindow, store.SlidingLog, store.SlidingWindow, store.SlidingBuckets} {
			limit := headgate.LimitOf(base.WithAlgorithm(algorithm).Rule().InBlocks(quick))
			if !limit.Rule().Valid() && algorithm == store.SlidingLog {
				continue // it cannot be so large
			}
			in(t, limit, func(b *bench) {
				size := limit.Burst()
				admitted := int64(0)
				take := func(cost int64) {
					d := b.do(store.KindTake, cost)
					if d.Allowed != (d.Granted == cost) || d.Remaining < 0 || d.Remaining > size || d.RetryAfter < 0 && cost <= size || d.ResetAfter < 0 {
						t.Errorf("%s: cost %d: %+v", limit, cost, d)
					}
					admitted += d.Granted
				}
				began := time.Now()
				for i := range 100 {
					take(1)
					if i == 50 {
						b.do(store.KindTake, 0)
						take(size / 3)
						take(size)
						take(size + 1)
					}
				}
				for _, cost := range []int64{size / 2, size / 3, size / 4} {
					if cost > 0 {
						take(cost)
					}
				}
				// PerSecond and a bucket get more in the meantime.
				if more := float64(time.Since(began)) / float64(limit.Period()) * float64(limit.N()); admitted > size+int64(more)+limit.Rule().BlockOver()+1 {
					t.Errorf("%s: %d admitted", limit, admitted)
				}
				if s := b.store.Stats(); len(s) > 0 && (s[0].Under < 0 || s[0].Under > size || s[0].Held < 0) {
					t.Errorf("%s: %+v", limit, s[0])
				}
			})
		}
	}
}

// closing is a remote store that can be closed.
type closing struct {
	*remote
	closed atomic.Bool
	late   atomic.Bool // it was called after that
}

func (c *closing) Close() error {
	c.closed.Store(true)
	return nil
}

func (c *closing) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		c.late.Store(c.late.Load() || c.closed.Load())
		return store.ExecuteAll(ctx, c.remote, ops, out, mode)
	})
}

// TestTwoEnds: a process that is closed by two callers at once gives its blocks back once,
// before the store behind is closed.
func TestTwoEnds(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		inner := &closing{remote: b.remote}
		b.store = New(inner, Options{Keys: 64})
		taken := b.heat()
		b.remote.slow(100 * time.Millisecond)
		ended := make(chan error)
		for range 2 {
			go func() { ended <- b.store.Close() }()
		}
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if left := b.shared(); left != 1000-taken || b.remote.calls(store.KindRefund) != 1 || inner.late.Load() {
			t.Errorf("%d left, want %d; given back after the end: %t", left, 1000-taken, inner.late.Load())
		}
	})
}
