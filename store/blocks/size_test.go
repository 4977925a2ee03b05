package blocks

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// steady takes one token every so often for a time, and returns the longest that one took.
func (b *bench) steady(every, long time.Duration) (longest time.Duration) {
	b.Helper()
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(every) {
		began := time.Now()
		if d := b.do(store.KindTake, 1); !d.Allowed {
			b.Fatalf("refused: %+v", d)
		}
		longest = max(longest, time.Since(began))
	}
	return longest
}

// TestBlocksOutlastAStall: whenever the store begins to need 200 ms, requests of a busy key
// do not wait, if its blocks may be old enough.
func TestBlocksOutlastAStall(t *testing.T) {
	in(t, hourly(10_000_000), func(b *bench) {
		const every = 250 * time.Microsecond
		b.steady(every, time.Second)
		for i := range 20 {
			b.steady(every, time.Duration(700+21*i)*time.Millisecond)
			b.remote.slow(400 * time.Millisecond) // what is sent now arrives after 200 ms
			waited := b.steady(every, 200*time.Millisecond)
			b.remote.slow(time.Millisecond)
			if waited = max(waited, b.steady(every, 100*time.Millisecond)); waited > 0 {
				t.Errorf("stall %d: a request waited for %s", i, waited)
			}
		}
	})
}

// TestBlocksLastASpan: a busy key needs few draws at a steady pace, whatever a round trip
// takes, and uses what it draws. (The end of a window ends its blocks.)
func TestBlocksLastASpan(t *testing.T) {
	second := store.Blocks{MaxAge: time.Second, MaxOver: 0.05}
	for _, c := range []struct {
		name  string
		limit headgate.Limit
		trip  time.Duration
		span  time.Duration // how long a block should last
		used  float64       // the least share of what is drawn that should be used
	}{
		{"window", hourly(1_000_000), time.Millisecond, 400 * time.Millisecond, 0.98},
		{"window, far away", hourly(1_000_000), 20 * time.Millisecond, 400 * time.Millisecond, 0.98},
		{"window of two seconds", headgate.LimitOf(headgate.Per(20_000, 2*time.Second).WithAlgorithm(store.FixedWindow).Rule().InBlocks(second)), time.Millisecond, 150 * time.Millisecond, 0.9},
		{"bucket of a second", headgate.LimitOf(headgate.PerSecond(10_000).Rule().InBlocks(second)), time.Millisecond, 37 * time.Millisecond, 0.98},
		{"bucket of a second, far away", headgate.LimitOf(headgate.PerSecond(10_000).Rule().InBlocks(second)), 10 * time.Millisecond, 23 * time.Millisecond, 0.98},
		{"bucket with a burst of 20 seconds", headgate.LimitOf(headgate.PerSecond(10_000).WithBurst(200_000).Rule().InBlocks(second)), time.Millisecond, 400 * time.Millisecond, 0.98},
		{"bucket of a minute", headgate.LimitOf(headgate.PerMinute(600_000).Rule().InBlocks(second)), time.Millisecond, 400 * time.Millisecond, 0.98},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, c.limit, func(b *bench) {
				b.steady(time.Millisecond, time.Second)
				b.remote.slow(c.trip)
				b.steady(time.Millisecond, time.Second)
				before := b.store.Stats()[0]
				b.steady(time.Millisecond, 10*time.Second)
				s := b.store.Stats()[0]
				if n, want := s.Draws-before.Draws, int64(10*time.Second/c.span); n > want*5/4+5 || n < want*3/4 {
					t.Errorf("%d draws in 10 s, want about %d", n, want)
				}
				if n, all := s.Admitted-before.Admitted, s.Drawn-before.Drawn; float64(n) < c.used*float64(all) {
					t.Errorf("%d of %d tokens were used", n, all)
				}
			})
		})
	}
}

// TestFewRequestsAtOnceAreNoPace: many in no time do not draw what as many in each moment
// would need.
func TestFewRequestsAtOnceAreNoPace(t *testing.T) {
	in(t, hourly(1_000_000), func(b *bench) {
		for range 100 {
			b.do(store.KindTake, 1)
		}
		time.Sleep(5 * time.Millisecond) // for a draw ahead
		if held := b.held(); held == 0 || held > 300 {
			t.Errorf("%d held after 100 requests", held)
		}
	})
}

// TestSlowerKeysHoldLess: soon after requests have become fewer, as much less is held.
func TestSlowerKeysHoldLess(t *testing.T) {
	in(t, hourly(1_000_000), func(b *bench) {
		b.steady(time.Millisecond, 3*time.Second)
		if held := b.held(); held < 300 || held > 900 {
			t.Errorf("%d held at 1000 a second", held)
		}
		b.steady(20*time.Millisecond, 3*time.Second)
		if held := b.held(); held < 10 || held > 45 {
			t.Errorf("%d held at 50 a second", held)
		}
	})
}

// TestSizeLearnsOnlyFromUse: neither a block that was hardly begun, nor one that nobody has
// asked for anything, nor one that was smaller than wanted, makes the next ones much smaller
// or larger.
func TestSizeLearnsOnlyFromUse(t *testing.T) {
	for _, c := range []struct {
		name               string
		block              *block
		left, now, to, was int64
	}{
		{"spent in a span", &block{size: 800, opened: 1}, 0, 400_001, 800, 400},
		{"spent in half a span", &block{size: 800, opened: 1}, 0, 200_001, 1600, 400},
		{"half used in a span", &block{size: 800, opened: 1}, 400, 400_001, 400, 800},
		{"hardly begun", &block{size: 800, opened: 1}, 799, 100_001, 400, 800},
		{"never begun", &block{size: 800}, 800, 400_001, 800, 800},
		{"spent at once", &block{size: 800, opened: 1}, 0, 2, 1600, 800},
		{"smaller than wanted", &block{size: 100, opened: 1, short: true}, 0, 10_001, 800, 800},
	} {
		op := store.Op{Key: "k", Scope: "s", Rule: hourly(1_000_000).Rule()}
		l := newLine(&op, 1, new(counters))
		l.size = c.was
		l.resize(c.block, c.left, c.now)
		if l.size != c.to {
			t.Errorf("%s: the next has %d, want %d", c.name, l.size, c.to)
		}
	}
}

// TestNextIsUsedAfterTheCurrentHasEnded: a block is too old and taken away before anybody
// asks for it. The next one is not.
func TestNextIsUsedAfterTheCurrentHasEnded(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		op := b.op(store.KindDraw, 8)
		l := newLine(&op, 1, new(counters))
		l.counters.limit = b.limit
		for range 2 {
			d, _ := l.begin(b.store.now(), 0, 0)
			op = l.draw(d.want)
			answer, err := store.Execute(t.Context(), b.remote.Store, op)
			if err != nil {
				t.Fatal(err)
			}
			l.finish(d, b.store.now(), answer, nil)
			time.Sleep(100 * time.Millisecond)
		}
		now := l.current.Load().deadline
		l.look(now)
		var d store.Decision
		if l.current.Load() != nil || l.next.Load() == nil {
			t.Fatal("the first block has not ended, or the second has")
		}
		if !l.spend(now, 1, &d) || !d.Allowed {
			t.Errorf("%+v, with %d held", d, l.next.Load().has(now))
		}
	})
}
