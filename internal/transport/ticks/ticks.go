// Package ticks is a clock for the timeouts of many connections, whose own deadlines would
// each set a timer for every read and every write. Who waits notes at which tick that began.
package ticks

import (
	"sync/atomic"
	"time"
)

// Clock ticks a few times in the shortest timeout. Start it once.
type Clock struct {
	Interval time.Duration // between ticks; set by Start

	now     atomic.Int64
	timer   *time.Timer
	stopped atomic.Bool
}

// perTimeout is how exactly the shortest timeout is kept: it may last an eighth longer.
const perTimeout = 8

// Start ticks and calls f at each tick, one at a time, until Stop.
func (c *Clock) Start(f func(), timeouts ...time.Duration) {
	c.Interval = time.Second
	for _, t := range timeouts {
		if t > 0 {
			c.Interval = max(min(c.Interval, t/perTimeout), time.Millisecond)
		}
	}
	c.timer = time.AfterFunc(time.Hour, func() {
		c.now.Add(1)
		f()
		if !c.stopped.Load() {
			c.timer.Reset(c.Interval)
		}
	})
	c.timer.Reset(c.Interval)
}

// Stop ends it.
func (c *Clock) Stop() {
	c.stopped.Store(true)
	c.timer.Stop()
}

// Now returns how many ticks there have been.
func (c *Clock) Now() int64 { return c.now.Load() }

// Of returns how many ticks a timeout lasts, at least; 0 for none.
func (c *Clock) Of(timeout time.Duration) int64 {
	if timeout <= 0 {
		return 0
	}
	return int64((timeout+c.Interval-1)/c.Interval) + 1
}
