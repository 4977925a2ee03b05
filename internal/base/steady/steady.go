// Package steady has the clock of a process: time of day that never goes back and does
// not follow a wrong wall clock.
//
// A [Clock] starts at the wall clock and continues with the machine's monotonic clock.
// When the wall clock is set, it follows slowly, so that a wall clock that is wrong for
// a while affects no limits:
//
//   - A difference of at most [Small] is corrected by running 1/[SlewSmall] faster or
//     slower.
//   - A wall clock further ahead is followed in one step once it has been ahead for
//     [Patience], or for [LongPatience] if it is ahead by more than [Large].
//   - A wall clock further behind, by at most [Large], is followed by running
//     1/[SlewLarge] slower. One that is behind by more is followed only by a restart.
//   - Where the system reports sleep (Linux), the time slept passes at once.
//
// Between two steps, a second of the clock is a second, to 1%.
package steady

import (
	"sync"
	"sync/atomic"
	"time"
)

// How differences to the wall clock are corrected; see the package.
const (
	Small        = time.Minute
	Large        = 24 * time.Hour
	SlewSmall    = 1000
	SlewLarge    = 100
	Patience     = time.Minute
	LongPatience = time.Hour
)

const (
	// lookEvery is how often a clock in use compares itself with the wall clock. A
	// change of the wall clock by noticeAt is noticed before that.
	lookEvery  = time.Second
	noticeAt   = 50 * time.Millisecond
	negligible = time.Millisecond       // normal difference of two readings
	leastSleep = 100 * time.Millisecond // the least that counts as sleep of the machine
	// same is how far a wall clock that is ahead may vary and still count as ahead since
	// the same time.
	same   = time.Second
	latest = 7258118400 * int64(time.Second) // the latest wall time that is accepted: the year 2200
)

// System has the clocks to follow. The zero System uses the machine's; tests use
// others.
type System struct {
	// Read returns the wall clock in nanoseconds since 1970 and a monotonic clock with
	// any origin, read together.
	Read func() (wall, monotonic int64)
	// Boot returns a monotonic clock with any origin that includes sleep, and false if
	// it could not be read; nil if there is none.
	Boot func() (nanoseconds int64, ok bool)
}

// Clock is the clock. Make it with [New], or call Start on the zero Clock. It is safe
// for concurrent use.
type Clock struct {
	system System
	base   time.Time // origin of the machine's monotonic clock

	segment atomic.Pointer[segment] // how time passes now; nil while that changes

	mu     sync.Mutex
	last   *segment
	boot   int64 // Boot minus the monotonic clock, without sleep
	ahead  ahead
	status Status
}

// segment is a period of time: its start by both clocks, and the correction to make.
type segment struct {
	monotonic, at int64
	skew          int64 // wall clock minus monotonic clock, at the start
	due           int64 // when to compare with the wall clock again
	slew, per     int64 // correction to make, as 1/per of the time that passes
}

// ahead is a wall clock that is too far ahead to be followed at once.
type ahead struct {
	is    bool
	since int64 // by the monotonic clock
	skew  int64
}

// Status compares a clock with the wall clock.
type Status struct {
	Difference time.Duration // wall clock minus this one, at the last comparison
	// Steps counts jumps to the wall clock, Stepped is their sum. Slept is how long the
	// machine has slept.
	Steps          int
	Stepped, Slept time.Duration
}

// New returns a started clock.
func New(system System) *Clock {
	c := new(Clock)
	c.Start(system)
	return c
}

// Start sets the clock to the wall clock.
func (c *Clock) Start(system System) {
	c.system, c.base = system, time.Now() //nolint:forbidigo // what a steady clock is made of
	if system.Read == nil && system.Boot == nil && c.base.Year() >= 2020 {
		// A clock before 2020 is a test's (testing/synctest starts in 2000), which does
		// not sleep with the machine.
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

// Wall returns the wall clock's time, to compare with times from other machines.
func (c *Clock) Wall() time.Time {
	wall, _ := c.read()
	return time.Unix(0, wall)
}

// Read returns the time in nanoseconds since 1970, the monotonic clock at that moment,
// and whether the clock currently runs slower than that one.
func (c *Clock) Read() (at, monotonic int64, slower bool) {
	if s := c.segment.Load(); s != nil {
		// The order matters: a reader that finishes before a segment ends has read a
		// time before its end.
		if wall, monotonic := c.read(); s.holds(wall, monotonic) && c.segment.Load() == s {
			return s.when(monotonic), monotonic, s.slew < 0
		}
	}
	return c.readBoth()
}

// Status compares the clock with the wall clock.
func (c *Clock) Status() Status {
	c.readBoth()
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

// holds reports whether s is still valid.
func (s *segment) holds(wall, monotonic int64) bool {
	return monotonic < s.due && magnitude(wall-monotonic-s.skew) < int64(noticeAt)
}

// when returns the time at a monotonic time.
func (s *segment) when(monotonic int64) int64 {
	passed := max(monotonic-s.monotonic, 0)
	most := passed / s.per
	return s.at + passed + min(max(s.slew, -most), most)
}

// readBoth compares with the wall clock and starts a new segment.
func (c *Clock) readBoth() (at, monotonic int64, slower bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.segment.Store(nil) // no reader uses the old one when its end is read
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

// follow sets how s corrects the difference to the wall clock.
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

// sleep returns how long the machine has slept since the last call. If the thread may
// have been interrupted between the readings, it returns 0, and the next call decides.
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
