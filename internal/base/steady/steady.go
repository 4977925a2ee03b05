// Package steady has the clock that everything in a process goes by: it tells
// the time of day, never goes back and never runs away.
//
// A [Clock] begins at the wall clock and goes on with the machine's monotonic
// clock. When somebody sets the wall clock, it follows by the rules below, so
// that a wall clock that is wrong for a while can neither refuse nor free
// anybody:
//
//   - A difference of at most [Small] is made good by running 1/[SlewSmall]
//     faster or slower.
//   - A wall clock further ahead is followed in one step once it has been ahead
//     for [Patience], or for [LongPatience] if that is more than [Large].
//   - A wall clock further behind, by at most [Large], is made good by running
//     1/[SlewLarge] slower. One that is behind by more is not followed: the
//     clock goes on, and only a restart puts it right.
//   - Where the machine says how long it slept (Linux), sleep is time that has
//     passed, at once.
//
// So between two steps, which need a wall clock that stays ahead, a second of
// the clock is a second, to 1%.
package steady

import (
	"sync"
	"sync/atomic"
	"time"
)

// What a difference to the wall clock is made good by; see the package.
const (
	Small        = time.Minute
	Large        = 24 * time.Hour
	SlewSmall    = 1000
	SlewLarge    = 100
	Patience     = time.Minute
	LongPatience = time.Hour
)

const (
	// lookEvery is how long the wall clock may go unwatched while somebody asks
	// for the time, noticeAt by how much it must have been set to be looked at
	// before that.
	lookEvery  = time.Second
	noticeAt   = 50 * time.Millisecond
	negligible = time.Millisecond       // what two readings differ by anyhow
	leastSleep = 100 * time.Millisecond // the least that counts as sleep of the machine
	// same is by how much a wall clock that is ahead may waver and still count
	// as the one that was ahead before.
	same   = time.Second
	latest = 7258118400 * int64(time.Second) // the last wall time that is believed: 2200
)

// System is what the clock goes by. The zero System is the machine's; tests
// give another.
type System struct {
	// Read returns the wall clock in nanoseconds since 1970 and the monotonic
	// one since any time, read together.
	Read func() (wall, monotonic int64)
	// Boot returns a monotonic clock that goes on while the machine sleeps,
	// since any time, and false if it could not be read; nil if there is none.
	Boot func() (nanoseconds int64, ok bool)
}

// Clock is the clock. Make it with [New], or call Start on the zero Clock; it is
// safe for use by any number of goroutines.
type Clock struct {
	system System
	base   time.Time // of the machine's monotonic clock

	segment atomic.Pointer[segment] // how the time passes now, nil while that is being changed

	mu     sync.Mutex
	last   *segment
	boot   int64 // Boot, less the monotonic clock and what was slept
	ahead  ahead
	status Status
}

// segment is a stretch of time: from when on, from what time on, and what is
// still to be made good.
type segment struct {
	monotonic, at int64
	skew          int64 // the wall clock less the monotonic one, at the begin
	due           int64 // when the wall clock is to be looked at again
	slew, per     int64 // to be made good, one part in per of the time that passes
}

// ahead is a wall clock that is too far ahead to be believed at once.
type ahead struct {
	is    bool
	since int64 // by the monotonic clock
	skew  int64
}

// Status says how a clock stands to the wall clock.
type Status struct {
	Difference time.Duration // the wall clock less this one, when last looked at
	// Steps counts how often it has followed in one step, and Stepped is how far
	// it has gone so in all; Slept is for how long the machine was seen to sleep.
	Steps          int
	Stepped, Slept time.Duration
}

// New returns a clock that has begun.
func New(system System) *Clock {
	c := new(Clock)
	c.Start(system)
	return c
}

// Start begins at the wall clock's time.
func (c *Clock) Start(system System) {
	c.system, c.base = system, time.Now() //nolint:forbidigo // what a steady clock is made of
	if system.Read == nil && system.Boot == nil && c.base.Year() >= 2020 {
		// A clock before 2020 is a test's (testing/synctest starts in 2000),
		// and the machine's sleep is none of its business.
		c.system.Boot = machineBoot
	}
	wall, monotonic := c.read()
	if c.system.Boot != nil {
		boot, ok := c.system.Boot()
		if c.boot = boot - monotonic; !ok {
			c.system.Boot = nil
		}
	}
	c.last = &segment{monotonic: monotonic, at: wall, skew: wall - monotonic, due: monotonic + int64(lookEvery), per: SlewSmall}
	c.segment.Store(c.last)
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	at, _, _ := c.Read()
	return time.Unix(0, at)
}

// Wall returns what the wall clock says: for times that others have written.
func (c *Clock) Wall() time.Time {
	wall, _ := c.read()
	return time.Unix(0, wall)
}

// Read returns the time in nanoseconds since 1970, the monotonic clock that it
// was made from, and whether it runs slower than that one at present.
func (c *Clock) Read() (at, monotonic int64, slower bool) {
	if s := c.segment.Load(); s != nil {
		// In this order: who is done before a segment ends has read a time
		// before its end.
		if wall, monotonic := c.read(); s.holds(wall, monotonic) && c.segment.Load() == s {
			return s.when(monotonic), monotonic, s.slew < 0
		}
	}
	return c.look()
}

// Status returns how the clock stands to the wall clock.
func (c *Clock) Status() Status {
	c.look()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// read reads the system's clocks.
func (c *Clock) read() (wall, monotonic int64) {
	if c.system.Read != nil {
		wall, monotonic = c.system.Read()
		return min(max(wall, 0), latest), monotonic
	}
	now := time.Now() //nolint:forbidigo // what a steady clock is made of
	seconds := min(max(now.Unix(), 0), latest/int64(time.Second))
	return seconds*int64(time.Second) + int64(now.Nanosecond()), int64(now.Sub(c.base))
}

// holds reports whether s says what the time is.
func (s *segment) holds(wall, monotonic int64) bool {
	return monotonic < s.due && magnitude(wall-monotonic-s.skew) < int64(noticeAt)
}

// when returns the time.
func (s *segment) when(monotonic int64) int64 {
	passed := max(monotonic-s.monotonic, 0)
	most := passed / s.per
	return s.at + passed + min(max(s.slew, -most), most)
}

// look looks at the wall clock and begins another segment.
func (c *Clock) look() (at, monotonic int64, slower bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.segment.Store(nil) // nobody is in the old one when its end is read
	wall, monotonic := c.read()
	monotonic = max(monotonic, c.last.monotonic)
	next := &segment{
		monotonic: monotonic, at: c.last.when(monotonic) + c.sleep(monotonic),
		skew: wall - monotonic, due: monotonic + int64(lookEvery), per: SlewSmall,
	}
	c.follow(next, wall)
	c.last = next
	c.segment.Store(next)
	return next.at, monotonic, next.slew < 0
}

// follow decides how s makes the difference to the wall clock good.
func (c *Clock) follow(s *segment, wall int64) {
	difference := wall - s.at
	if difference > int64(Small) {
		if c.mayStep(s, difference) {
			s.at = wall
			c.status.Steps++
			c.status.Stepped += time.Duration(difference)
			difference, c.ahead = 0, ahead{}
		}
	} else {
		c.ahead = ahead{}
	}
	switch size := magnitude(difference); {
	case size <= int64(negligible):
	case size <= int64(Small):
		s.slew = difference
	case difference < 0 && size <= int64(Large):
		s.slew, s.per = difference, SlewLarge
	}
	c.status.Difference = time.Duration(difference)
}

// mayStep reports whether the wall clock has been ahead for long enough.
func (c *Clock) mayStep(s *segment, difference int64) bool {
	if !c.ahead.is || magnitude(s.skew-c.ahead.skew) > int64(same) {
		c.ahead = ahead{true, s.monotonic, s.skew}
		return false
	}
	patience := Patience
	if difference > int64(Large) {
		patience = LongPatience
	}
	return s.monotonic-c.ahead.since >= int64(patience)
}

// sleep returns for how long the machine has slept since it was asked last. A
// thread that was interrupted between two readings is asked again later.
func (c *Clock) sleep(monotonic int64) int64 {
	if c.system.Boot == nil {
		return 0
	}
	boot, ok := c.system.Boot()
	slept := boot - monotonic - c.boot
	if !ok || slept < int64(leastSleep) {
		return 0
	}
	if _, again := c.read(); slept-(again-monotonic) < int64(leastSleep) {
		return 0
	}
	c.boot += slept
	c.status.Slept += time.Duration(slept)
	return slept
}

func magnitude(n int64) int64 { return max(n, -n) }
