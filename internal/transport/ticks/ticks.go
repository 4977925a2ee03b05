// Package ticks is a clock for the timeouts of many connections. Deadlines of their own
// would set a timer for every read and write; instead a connection records the tick at
// which it started to wait.
package ticks

import (
	"sync/atomic"
	"time"
)

// Clock ticks several times in the shortest timeout. Start it once.
type Clock struct {
	Interval time.Duration // between ticks; set by Start

	now     atomic.Int64
	timer   *time.Timer
	stopped atomic.Bool
}

// perTimeout is the number of ticks in the shortest timeout, which may be exceeded by an
// eighth.
const perTimeout = 8

// Start calls f at each tick, never concurrently, until Stop.
func (c *Clock) Start(f func(), timeouts ...time.Duration) {
	c.Interval = time.Second
	for _, t := range timeouts {
		if t > 0 {
			c.Interval = max(min(c.Interval, t/perTimeout), time.Millisecond)
		}
	}
	c.timer = time.AfterFunc(time.Hour, func() {
		c.Advance()
		f()
		if !c.stopped.Load() {
			c.timer.Reset(c.Interval)
		}
	})
	c.timer.Reset(c.Interval)
}

// Stop stops the clock.
func (c *Clock) Stop() {
	c.stopped.Store(true)
	c.timer.Stop()
}

// Advance counts a tick.
func (c *Clock) Advance() { c.now.Add(1) }

// Now returns the number of ticks so far.
func (c *Clock) Now() int64 { return c.now.Load() }

// Of returns the least number of ticks in a timeout; 0 for none.
func (c *Clock) Of(timeout time.Duration) int64 {
	if timeout <= 0 {
		return 0
	}
	return int64((timeout+c.Interval-1)/c.Interval) + 1
}
