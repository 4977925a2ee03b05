// Package fastclock reads the time of package steady in a few nanoseconds.
package fastclock

import (
	"sync/atomic"
	"unsafe"

	"github.com/headgate/headgate/internal/base/steady"
)

// Clock returns the time in microseconds since the Unix epoch. It is a [steady.Clock],
// which documents what happens when the wall clock is set.
//
// Reading the system's clock costs more than a whole decision. So between two readings,
// for at most a millisecond, the time is interpolated with the processor's counter, if
// that is steady. A reading is published as an anchor under a sequence lock: odd while
// it is being written.
type Clock struct {
	source steady.Clock

	seq   atomic.Uint64
	ticks atomic.Uint64 // the counter at the anchor
	at    atomic.Int64  // the time at the anchor, in 2^-fraction microseconds
	scale atomic.Uint64 // 2^-scaleBits microseconds per tick; 0 if unknown
	span  atomic.Uint64 // how many ticks the anchor is valid

	steady      atomic.Bool
	base        int64  // the monotonic clock at the start, in nanoseconds
	first       uint64 // the counter at base
	narrowest   uint64 // the ticks that reading both took at the start
	calibrated  int64  // microseconds after base of the last calibration
	exact       uint64 // the scale, as exactly as it is known
	anchored    int64  // nanoseconds after base of the anchor
	differences int    // how often the counter and the clock disagreed
}

const (
	fraction  = 11
	scaleBits = 40
	// anchorFor is how long an anchor is valid, in microseconds.
	anchorFor = 1000
	// calibrateAfter is how long the counter and the clock are compared before the
	// counter is used, in microseconds. Each reading is accurate to about 0.1 µs.
	calibrateAfter = 10_000
	// mostDifferences is how often they may disagree by more than tolerance before the
	// counter is no longer used.
	mostDifferences = 16
	tolerance       = 200_000 // nanoseconds
	// slack and slewSlack are how much too slow the scale is on purpose (60 and 16,000
	// ppm), so that the next anchor is not behind an interpolated time. slewSlack is
	// used when the time runs 1% slower than the counter.
	slack, slewSlack = 14, 6
	// startReadings is how often the clock is read at the start, to get a reading that
	// was not interrupted. Until the counter is calibrated, a reading counts if it took
	// at most tooWide times as long as that one.
	startReadings, tooWide = 5, 8
	// oldest is the earliest time that is not a test's: the start of 2020
	// (testing/synctest starts in 2000).
	oldest = 1577836800e9
)

// Start sets the clock to the wall clock. Call it once, before Now.
func (c *Clock) Start(system steady.System) {
	c.source.Start(system)
	for i := range startReadings {
		r := c.readBoth()
		if i == 0 || r.width < c.narrowest {
			c.base, c.first, c.narrowest = r.monotonic, r.tick, r.width
		}
		c.steady.Store(ticksAreSteady() && r.at >= oldest)
	}
}

// reading is a reading of the source and the counter together.
type reading struct {
	at, monotonic int64
	slower        bool
	tick          uint64
	// width is how many ticks it took. If the thread was interrupted in between, the
	// two do not match.
	width uint64
}

func (c *Clock) readBoth() reading {
	before := ticks(c.itself())
	at, monotonic, slower := c.source.Read()
	width := ticks(c.itself()) - before
	return reading{at, monotonic, slower, before + width/2, width}
}

// together reports whether r can be an anchor.
func (c *Clock) together(r reading) bool {
	if span := c.span.Load(); span != 0 {
		return r.width < span/200
	}
	return r.width <= c.narrowest*tooWide
}

// itself returns the address to use for reading the counter when there is nothing to
// prefetch.
func (c *Clock) itself() uintptr {
	return uintptr(unsafe.Pointer(c)) //nolint:gosec // an address, never a pointer again
}

// Now returns the time in microseconds since the Unix epoch.
func (c *Clock) Now() int64 { return c.NowFetching(c.itself()) }

// NowFetching is Now, but also prefetches the cache line at address: reading the
// counter takes as long as a tenth of a memory access. The address need not be valid.
func (c *Clock) NowFetching(address uintptr) int64 {
	seq := c.seq.Load()
	at, scale, span := c.at.Load(), c.scale.Load(), c.span.Load()
	// If the counter is behind the anchor (on another core, for example), the
	// difference is huge.
	if d := ticks(address) - c.ticks.Load(); d < span && seq&1 == 0 && c.seq.Load() == seq {
		return (at + int64(d*scale>>(scaleBits-fraction))) >> fraction
	}
	return c.read()
}

// read reads the source and sets the anchor, unless another caller is doing so.
func (c *Clock) read() int64 {
	if !c.steady.Load() {
		return c.readSource()
	}
	seq := c.seq.Load()
	if seq&1 != 0 || !c.seq.CompareAndSwap(seq, seq+1) {
		return c.readSource()
	}
	r := c.readBoth()
	if c.together(r) {
		elapsed := r.monotonic - c.base
		c.check(elapsed, r.tick)
		c.calibrate(elapsed, r.tick)
		c.anchored = elapsed
		c.ticks.Store(r.tick)
		c.at.Store(r.at/1000<<fraction + r.at%1000<<fraction/1000)
		if r.slower {
			c.scale.Store(c.exact - c.exact>>slewSlack)
		} else {
			c.scale.Store(c.exact - c.exact>>slack)
		}
	}
	c.seq.Store(seq + 2)
	return r.at / 1000
}

func (c *Clock) readSource() int64 {
	at, _, _ := c.source.Read()
	return at / 1000
}

// check counts how often the counter deviates from the monotonic clock, which is
// elapsed nanoseconds after base at t, and stops using the counter if that happens too
// often.
func (c *Clock) check(elapsed int64, t uint64) {
	d := t - c.ticks.Load()
	if c.exact == 0 || d > c.span.Load()*100 {
		return
	}
	miss := int64((d>>10)*c.exact>>(scaleBits-10))*1000 - (elapsed - c.anchored)
	if max(miss, -miss) <= tolerance {
		return
	}
	if c.differences++; c.differences == mostDifferences {
		c.steady.Store(false)
		c.span.Store(0)
	}
}

// calibrate computes the scale from the whole time since base, again each time that has
// grown tenfold.
func (c *Clock) calibrate(elapsed int64, t uint64) {
	micros := elapsed / 1000
	if !c.steady.Load() || micros < calibrateAfter || micros < c.calibrated*10 || t <= c.first {
		return
	}
	c.calibrated = micros
	perMicro := float64(t-c.first) * 1000 / float64(elapsed)
	if perMicro < 10 || perMicro > 100_000 {
		c.steady.Store(false)
		c.span.Store(0)
		return
	}
	c.exact = uint64((1 << scaleBits) / perMicro)
	c.span.Store(uint64(perMicro * anchorFor))
}
