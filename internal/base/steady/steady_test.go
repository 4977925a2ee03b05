package steady_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/base/steady"
)

// machine is a machine whose clocks the test moves.
type machine struct {
	monotonic, offset, asleep int64
	*steady.Clock
}

var noon = time.Date(2026, time.November, 21, 12, 0, 0, 0, time.UTC)

func newMachine() *machine {
	m := &machine{monotonic: int64(time.Hour), offset: noon.Add(-time.Hour).UnixNano()}
	m.Clock = steady.New(steady.System{
		Read: func() (wall, monotonic int64) { return m.monotonic + m.offset, m.monotonic },
		Boot: func() (int64, bool) { return m.monotonic + m.asleep, true },
	})
	return m
}

func (m *machine) pass(d time.Duration) { m.monotonic += int64(d) }
func (m *machine) set(d time.Duration)  { m.offset += int64(d) }

// sleep suspends the machine: the wall clock and the boot clock continue.
func (m *machine) sleep(d time.Duration) { m.offset += int64(d); m.asleep += int64(d) }

// run lets time pass, and reads the clock at intervals.
func (m *machine) run(d, each time.Duration) {
	for ; d > 0; d -= each {
		m.pass(min(d, each))
		m.Now()
	}
}

// TestTraces: changes to the wall clock, and the resulting time.
func TestTraces(t *testing.T) {
	const ms, s, minute, hour, day, year = time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour, 8766 * time.Hour
	tests := []struct {
		name string
		do   func(*machine)
		want time.Duration // since noon
	}{
		{"nothing", func(m *machine) { m.run(hour, s) }, hour},
		{"set back 5 s, a second later", func(m *machine) { m.set(-5 * s); m.run(s, ms) }, 999 * ms},
		{"set back 5 s, made good in 5000 s", func(m *machine) { m.set(-5 * s); m.run(5000*s, s) }, 4995 * s},
		{"set back 5 s, with nobody asking", func(m *machine) { m.set(-5 * s); m.Now(); m.pass(2 * hour) }, 2*hour - 5*s},
		{"ahead 5 s, made good in 5000 s", func(m *machine) { m.set(5 * s); m.run(5000*s, s) }, 5005 * s},
		{"set back an hour, an hour later", func(m *machine) { m.set(-hour); m.run(hour, s) }, hour - 36*s},
		{"set back an hour, five days later", func(m *machine) { m.set(-hour); m.run(5*day, 10*s) }, 5*day - hour},
		{"set back a year", func(m *machine) { m.set(-year); m.run(day, minute) }, day},
		{"ahead an hour, 59 s later", func(m *machine) { m.set(hour); m.run(59*s, s) }, 59 * s},
		{"ahead an hour, 61 s later", func(m *machine) { m.set(hour); m.run(61*s, s) }, hour + 61*s},
		{"ahead ten years for 0.3 s", func(m *machine) { m.set(10 * year); m.run(300*ms, ms); m.set(-10 * year); m.run(hour, s) }, hour + 300*ms},
		{"ahead ten years for 59 minutes", func(m *machine) { m.set(10 * year); m.run(59*minute, s); m.set(-10 * year); m.run(hour, s) }, hour + 59*minute},
		{"ahead ten years, 61 minutes later", func(m *machine) { m.set(10 * year); m.run(61*minute, s) }, 10*year + 61*minute},
		{"ahead ten years for two hours: ten years ahead until the restart", func(m *machine) {
			m.set(10 * year)
			m.run(2*hour, s)
			m.set(-10 * year)
			m.run(day, s)
		}, 10*year + 26*hour},
		{"ahead by another hour every 50 s", func(m *machine) {
			for range 10 {
				m.set(hour)
				m.run(50*s, s)
			}
		}, 500 * s},
		{"slept eight hours", func(m *machine) { m.sleep(8 * hour); m.run(s, s) }, 8*hour + s},
		{"slept eight hours with the wall clock set back meanwhile", func(m *machine) { m.sleep(8 * hour); m.set(-8 * hour); m.run(s, s) }, 8*hour + 990*ms},
		{"back and forth by an hour", func(m *machine) {
			for range 600 {
				m.set(hour)
				m.run(s, s)
				m.set(-hour)
				m.run(s, s)
			}
		}, 1200 * s},
		{"in the year 2900", func(m *machine) { m.set(290 * year); m.run(minute, s) }, minute},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := newMachine()
			test.do(m)
			got := m.Now().Sub(noon)
			if off := got - test.want; max(off, -off) > 20*time.Millisecond {
				t.Errorf("%s after noon, want %s", got, test.want)
			}
		})
	}
}

// TestHistories: whatever happens to the wall clock, the time never goes back, a second
// of it is a second to 1%, it only steps to a wall clock that has been ahead for a
// minute, and it ends at the wall clock unless that is more than a day behind.
func TestHistories(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { history(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func history(t *testing.T, r *rand.Rand) {
	m := newMachine()
	w := &watch{t: t, m: m, last: m.Now(), lastMonotonic: m.monotonic}
	for range 100 {
		switch r.IntN(12) {
		case 0:
			m.set(random(r, time.Minute))
		case 1:
			m.set(random(r, 36*time.Hour))
		case 2:
			m.set(random(r, 20*365*24*time.Hour))
		case 3:
			m.offset = noon.Add(-time.Hour).UnixNano() + m.asleep // corrected
		case 4:
			m.sleep(random(r, 12*time.Hour).Abs() + time.Second)
		default:
			w.run(random(r, 5*time.Minute).Abs(), random(r, 3*time.Second).Abs()+time.Millisecond)
		}
	}
	w.converges()
}

// random returns a positive or negative duration of any magnitude up to most.
func random(r *rand.Rand, most time.Duration) time.Duration {
	d := time.Duration(r.Int64N(int64(most))) >> r.IntN(20)
	if r.IntN(2) == 0 {
		return -d
	}
	return d
}

// watch checks the promises about a machine's clock.
type watch struct {
	t             *testing.T
	m             *machine
	last          time.Time
	lastMonotonic int64
	lastAsleep    int64
	ahead         bool
	since, offset int64
}

func (w *watch) run(d, each time.Duration) {
	for ; d > 0; d -= each {
		w.m.pass(min(d, each))
		w.ask()
	}
}

func (w *watch) ask() {
	m := w.m
	now := m.Now()
	passed := time.Duration(m.monotonic - w.lastMonotonic + m.asleep - w.lastAsleep)
	if now.Before(w.last) {
		w.t.Fatalf("it went back by %s", w.last.Sub(now))
	}
	moved := now.Sub(w.last)
	if off := moved - passed; max(off, -off) > passed/100+time.Microsecond {
		switch {
		case off < 0 || now.UnixNano() != m.monotonic+m.offset:
			w.t.Fatalf("in %s it went on by %s, and not to the wall clock", passed, moved)
		case !w.ahead || m.monotonic-w.since < int64(steady.Patience) || off > steady.Large && m.monotonic-w.since < int64(steady.LongPatience):
			w.t.Fatalf("it followed by %s after %s", off, time.Duration(m.monotonic-w.since))
		}
	}
	// The time since when the wall clock has been ahead by the same amount, to a
	// second.
	switch was := w.ahead; {
	case m.monotonic+m.offset-now.UnixNano() <= int64(steady.Small):
		w.ahead = false
	case !was || time.Duration(m.offset-w.offset).Abs() > time.Second:
		w.ahead, w.since, w.offset = true, m.monotonic, m.offset
	}
	w.last, w.lastMonotonic, w.lastAsleep = now, m.monotonic, m.asleep
}

// converges lets time pass until the wall clock should be followed.
func (w *watch) converges() {
	m := w.m
	w.run(2*time.Minute, time.Second)
	difference := time.Duration(m.monotonic + m.offset - m.Now().UnixNano())
	long := time.Minute * steady.SlewSmall
	switch {
	case difference < -steady.Large:
		return
	case difference < 0:
		long += difference.Abs() * steady.SlewLarge
	default:
		long += steady.LongPatience
	}
	w.run(long+time.Hour, max(long/500, time.Second))
	if left := time.Duration(m.monotonic + m.offset - m.Now().UnixNano()); left.Abs() > 2*time.Millisecond {
		w.t.Errorf("%s after %s it is still %s", difference, long, left)
	}
}

// TestNeverBackBetweenGoroutines: no goroutine reads an earlier time than another has
// read before, while the wall clock is set back and forth.
func TestNeverBackBetweenGoroutines(t *testing.T) {
	var offset, latest atomic.Int64
	base := time.Now()
	c := steady.New(steady.System{Read: func() (wall, monotonic int64) {
		monotonic = int64(time.Since(base))
		return base.UnixNano() + monotonic + offset.Load(), monotonic
	}})
	var done atomic.Bool
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for !done.Load() {
				before := latest.Load()
				now := c.Now().UnixNano()
				if now < before {
					t.Errorf("it went back by %d ns", before-now)
					return
				}
				for old := before; now > old && !latest.CompareAndSwap(old, now); old = latest.Load() {
				}
			}
		})
	}
	for i := range 3_000 {
		offset.Store(int64(i%3-1) * int64(time.Hour))
		c.Status()
	}
	done.Store(true)
	readers.Wait()
}

// TestMachine uses the machine's own clocks.
func TestMachine(t *testing.T) {
	c := steady.New(steady.System{})
	for range 1000 {
		before := time.Now()
		now := c.Now()
		if after := time.Now(); now.Before(before.Add(-time.Millisecond)) || now.After(after.Add(time.Millisecond)) {
			t.Fatalf("%s is not from %s to %s", now, before, after)
		}
	}
	if s := c.Status(); s.Slept != 0 || s.Steps != 0 {
		t.Errorf("%+v", s)
	}
}

// TestBubble: in testing/synctest the clock is exactly that of the bubble.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := steady.New(steady.System{})
		for _, d := range []time.Duration{0, 1, time.Microsecond, time.Second, 400 * 24 * time.Hour} {
			time.Sleep(d)
			if now := c.Now(); !now.Equal(time.Now()) {
				t.Errorf("after %s more: %s, want %s", d, now, time.Now())
			}
		}
	})
}

func BenchmarkSystem(b *testing.B) {
	for b.Loop() {
		_ = time.Now()
	}
}

func BenchmarkNow(b *testing.B) {
	c := steady.New(steady.System{})
	for b.Loop() {
		c.Now()
	}
}
