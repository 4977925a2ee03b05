package memory

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/steady"
)

// TestClockFollowsTheSystem compares the interpolated time with the system's
// over some tens of milliseconds: before, during and after calibration.
func TestClockFollowsTheSystem(t *testing.T) {
	var c clock
	c.start(steady.System{})
	readings, last := 0, int64(0)
	for begin := time.Now(); time.Since(begin) < 50*time.Millisecond; readings++ {
		before := time.Now()
		now := c.now()
		after := time.Now()
		// 50 µs for a wall clock that is being slewed, and for an
		// interruption between the two halves of an anchor.
		if now < before.UnixMicro()-50 || now > after.UnixMicro()+50 {
			t.Fatalf("reading %d: %d is not from %d to %d", readings, now, before.UnixMicro(), after.UnixMicro())
		}
		if now < last-50 {
			t.Fatalf("reading %d: went back by %d µs", readings, last-now)
		}
		last = now
	}
	if readings < 100 {
		t.Errorf("only %d readings", readings)
	}
	if ticksAreSteady() && c.steady.Load() && c.span.Load() == 0 {
		t.Error("the counter is steady but was not calibrated")
	}
}

// TestClockInABubble: under testing/synctest the clock is exact.
func TestClockInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		c.start(steady.System{})
		for _, d := range []time.Duration{0, time.Microsecond, 999 * time.Microsecond, time.Second, 400 * 24 * time.Hour} {
			time.Sleep(d)
			if got, want := c.now(), time.Now().UnixMicro(); got != want {
				t.Errorf("after %s more: %d, want %d", d, got, want)
			}
		}
	})
}

// TestClockGivesUpTheCounter: a counter that disagrees with the system's clock
// again and again is not used any more.
func TestClockGivesUpTheCounter(t *testing.T) {
	var c clock
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

func TestInjectedClock(t *testing.T) {
	now := time.UnixMicro(t0)
	s := New(WithClock(func() time.Time { return now }))
	if got := s.clock.now(); got != t0 {
		t.Error(got)
	}
	now = now.Add(-time.Hour)
	if got := s.clock.now(); got != t0-3_600_000_000 {
		t.Error(got)
	}
}
