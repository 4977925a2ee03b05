package fastclock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/base/steady"
)

// patience is long enough for a busy machine.
const patience = 30 * time.Second

// TestClockFollowsTheSystem compares the interpolated time with the system's for some
// tens of milliseconds: before, during and after calibration.
func TestClockFollowsTheSystem(t *testing.T) {
	var c Clock
	c.Start(steady.System{})
	calibrated := 0 // readings since calibration
	last := int64(0)
	begin := time.Now()
	for readings := 0; time.Since(begin) < 50*time.Millisecond || readings < 100 || c.steady.Load() && calibrated < 100; readings++ {
		if time.Since(begin) > patience {
			t.Fatalf("%d readings, %d of them with a calibrated counter", readings, calibrated)
		}
		if c.span.Load() != 0 {
			calibrated++
		}
		before := time.Now()
		now := c.Now()
		after := time.Now()
		// 50 µs for a wall clock that is being slewed, and for an interruption between
		// the two readings of an anchor.
		if now < before.UnixMicro()-50 || now > after.UnixMicro()+50 {
			t.Fatalf("reading %d: %d is not from %d to %d", readings, now, before.UnixMicro(), after.UnixMicro())
		}
		if now < last-50 {
			t.Fatalf("reading %d: went back by %d µs", readings, last-now)
		}
		last = now
	}
}

// TestClockIsNotMisledByInterruptions: if a thread loses its CPU between reading the
// clock and the counter, at the start or during calibration, the two do not match. Such
// a pair is not used for calibration: the time would be a fifth too fast or too slow.
func TestClockIsNotMisledByInterruptions(t *testing.T) {
	if !ticksAreSteady() {
		t.Skip("no counter that is steady")
	}
	const interruption = 2 * time.Millisecond
	base := time.Now()
	read := func() (wall, monotonic int64) {
		now := time.Now()
		return now.UnixNano(), int64(now.Sub(base))
	}
	interrupted := func() (wall, monotonic int64) {
		wall, monotonic = read()
		for began := time.Now(); time.Since(began) < interruption; {
		}
		return wall, monotonic
	}
	for name, interrupts := range map[string]func(call int, since time.Duration) bool{
		"at the start": func(call int, _ time.Duration) bool { return call < 3 },
		"at the first calibrations": func(_ int, since time.Duration) bool {
			return since > 9*time.Millisecond && since < 15*time.Millisecond
		},
	} {
		t.Run(name, func(t *testing.T) {
			var c Clock
			call, began := 0, time.Now()
			c.Start(steady.System{Read: func() (wall, monotonic int64) {
				call++
				if interrupts(call, time.Since(began)) {
					return interrupted()
				}
				return read()
			}})
			for c.span.Load() == 0 {
				if c.Now(); time.Since(began) > patience {
					t.Fatal("not calibrated")
				}
			}
			want := float64(1<<scaleBits) / perMicrosecond(t, &c, read)
			if got := float64(c.exact); got < 0.99*want || got > 1.01*want {
				t.Errorf("the time runs at %.3f of its speed", got/want)
			}
		})
	}
}

// perMicrosecond returns the number of ticks per microsecond, from two uninterrupted
// readings that are far apart.
func perMicrosecond(t *testing.T, c *Clock, read func() (wall, monotonic int64)) float64 {
	t.Helper()
	pair := func() (at int64, tick uint64) {
		for began := time.Now(); time.Since(began) < patience; {
			before := time.Now()
			_, at = read()
			tick = ticks(c.itself())
			if time.Since(before) < 5*time.Microsecond {
				return at, tick
			}
		}
		t.Fatal("no two readings together")
		return 0, 0
	}
	at0, tick0 := pair()
	for began := time.Now(); time.Since(began) < 20*time.Millisecond; {
	}
	at1, tick1 := pair()
	return float64(tick1-tick0) * 1000 / float64(at1-at0)
}

// TestClockInABubble: under testing/synctest the clock is exact.
func TestClockInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		c.Start(steady.System{})
		for _, d := range []time.Duration{0, time.Microsecond, 999 * time.Microsecond, time.Second, 400 * 24 * time.Hour} {
			time.Sleep(d)
			if got, want := c.Now(), time.Now().UnixMicro(); got != want {
				t.Errorf("after %s more: %d, want %d", d, got, want)
			}
		}
	})
}

// TestClockGivesUpTheCounter: a counter that repeatedly disagrees with the system's
// clock is no longer used.
func TestClockGivesUpTheCounter(t *testing.T) {
	var c Clock
	c.steady.Store(true)
	c.exact = 1 << scaleBits / 1000
	c.span.Store(1_000_000)
	for i := range mostDifferences {
		if !c.steady.Load() {
			t.Fatalf("given up after %d differences", i)
		}
		c.check(tolerance*2, c.ticks.Load()+10)
	}
	if c.steady.Load() || c.span.Load() != 0 {
		t.Error("not given up")
	}
}
