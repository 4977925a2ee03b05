package memory

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// clock gives the time in microseconds since the Unix epoch. It follows the
// operating system's monotonic clock from the wall time at which it was made,
// so that a wall clock set back does not go back here; where the wall clock is
// more than a second ahead (the machine slept), it jumps forward.
//
// Reading the system's clock costs more than a whole decision, so that between
// two readings, for at most a millisecond, the time is interpolated by the
// processor's counter, where that is steady. A reading is published as an
// anchor under a sequence lock: odd while it is being written.
type clock struct {
	// injected replaces all else.
	injected func() time.Time
	base     time.Time
	wall     int64 // microseconds, at base

	ahead atomic.Int64 // what the wall clock has jumped forward, microseconds

	seq   atomic.Uint64
	ticks atomic.Uint64 // the counter at the anchor
	at    atomic.Int64  // the time at the anchor, in 2^-fraction microseconds
	scale atomic.Uint64 // 2^-scaleBits microseconds per tick; 0 if unknown
	span  atomic.Uint64 // ticks for which the anchor is good

	steady      atomic.Bool
	first       uint64 // the counter at base
	calibrated  int64  // microseconds after base of the last calibration
	differences int    // how often counter and clock disagreed
}

const (
	fraction  = 11
	scaleBits = 40
	// anchorFor is how long an anchor is good, in microseconds.
	anchorFor = 1000
	// calibrateAfter is how long counter and clock are compared before the
	// counter is used, in microseconds. Each reading is good to about 0.1 µs.
	calibrateAfter = 10_000
	// mostDifferences is how often they may disagree by more than tolerance
	// before the counter is given up.
	mostDifferences = 16
	tolerance       = 200 << fraction
	// jump is how far the wall clock must be ahead to be believed.
	jump = 1_000_000
)

func (c *clock) start() {
	c.base = time.Now() //nolint:forbidigo // the store's own clock
	c.wall = c.base.UnixMicro()
	c.first = ticks(c.itself())
	// A clock before 2020 is a test's (testing/synctest starts in 2000).
	c.steady.Store(ticksAreSteady() && c.base.Year() >= 2020)
}

// itself is the address for reading the counter when there is nothing to fetch.
func (c *clock) itself() uintptr {
	return uintptr(unsafe.Pointer(c)) //nolint:gosec // an address, never a pointer again
}

// now returns the time in microseconds.
func (c *clock) now() int64 { return c.nowFetching(c.itself()) }

// nowFetching is now, and asks for the cache line at an address meanwhile: to read
// the counter takes as long as a tenth of the way to memory. Nothing need be
// there.
func (c *clock) nowFetching(address uintptr) int64 {
	if c.injected != nil {
		return c.injected().UnixMicro()
	}
	seq := c.seq.Load()
	at, scale, span := c.at.Load(), c.scale.Load(), c.span.Load()
	// A counter behind the anchor (another core's, say) gives a huge
	// difference.
	if d := ticks(address) - c.ticks.Load(); d < span && seq&1 == 0 && c.seq.Load() == seq {
		return (at + int64(d*scale>>(scaleBits-fraction))) >> fraction
	}
	return c.read()
}

// read reads the system's clock and, if nobody else is at it, sets the anchor.
func (c *clock) read() int64 {
	if !c.steady.Load() {
		at, _ := c.system()
		return at >> fraction
	}
	seq := c.seq.Load()
	if seq&1 != 0 || !c.seq.CompareAndSwap(seq, seq+1) {
		at, _ := c.system()
		return at >> fraction
	}
	before := ticks(c.itself())
	at, elapsed := c.system()
	after := ticks(c.itself())
	// Where the thread was interrupted in between, the two do not belong
	// together.
	if span := c.span.Load(); span == 0 || after-before < span/200 {
		t := before + (after-before)/2
		c.check(at, t)
		c.calibrate(elapsed, t)
		c.ticks.Store(t)
		c.at.Store(at)
	}
	c.seq.Store(seq + 2)
	return at >> fraction
}

// system returns the time in 2^-fraction microseconds, and the time since base
// in nanoseconds.
func (c *clock) system() (at, elapsed int64) {
	now := time.Now() //nolint:forbidigo // the store's own clock
	elapsed = int64(now.Sub(c.base))
	ahead := c.ahead.Load()
	micros := c.wall + ahead + elapsed/1000
	if late := now.UnixMicro() - micros; late > jump && c.ahead.CompareAndSwap(ahead, ahead+late) {
		micros += late
	}
	return micros<<fraction + elapsed%1000<<fraction/1000, elapsed
}

// check counts how often the interpolation has missed the clock, and gives the
// counter up when that has become too often.
func (c *clock) check(at int64, t uint64) {
	d, scale := t-c.ticks.Load(), c.scale.Load()
	if scale == 0 || d > c.span.Load()*100 {
		return
	}
	miss := c.at.Load() + int64((d>>10)*scale>>(scaleBits-fraction-10)) - at
	if max(miss, -miss) <= tolerance {
		return
	}
	if c.differences++; c.differences == mostDifferences {
		c.steady.Store(false)
		c.span.Store(0)
	}
}

// calibrate finds the scale from all the time since base, again whenever that
// has become ten times as long.
func (c *clock) calibrate(elapsed int64, t uint64) {
	micros := elapsed / 1000
	if !c.steady.Load() || micros < calibrateAfter || micros < c.calibrated*10 || t <= c.first {
		return
	}
	c.calibrated = micros
	perMicro := float64(t-c.first) * 1000 / float64(elapsed)
	if perMicro < 10 || perMicro > 100_000 {
		c.steady.Store(false)
		return
	}
	// Slightly slow (60 ns in a millisecond), so that the next anchor is not
	// behind what has been interpolated.
	scale := uint64((1 << scaleBits) / perMicro)
	c.scale.Store(scale - scale>>14)
	c.span.Store(uint64(perMicro * anchorFor))
}
