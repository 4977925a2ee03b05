package resp

import (
	"sync/atomic"
	"time"
)

// watch is a clock that ticks a few times in the shortest of the timeouts. A
// connection notes at which tick it began to wait, and every tick those are
// closed that have waited for too long. A deadline on the connection itself
// would set a timer for every read and every write.
type watch struct {
	now      atomic.Int64 // ticks so far
	interval time.Duration
	timer    *time.Timer
	stopped  atomic.Bool
}

// ticksPerTimeout is how exactly the shortest timeout is kept: it may last an
// eighth longer.
const ticksPerTimeout = 8

// start ticks and calls expire at each tick, one at a time.
func (w *watch) start(expire func(), timeouts ...time.Duration) {
	w.interval = time.Second
	for _, t := range timeouts {
		if t > 0 {
			w.interval = max(min(w.interval, t/ticksPerTimeout), time.Millisecond)
		}
	}
	w.timer = time.AfterFunc(time.Hour, func() {
		w.now.Add(1)
		expire()
		if !w.stopped.Load() {
			w.timer.Reset(w.interval)
		}
	})
	w.timer.Reset(w.interval)
}

func (w *watch) stop() {
	w.stopped.Store(true)
	w.timer.Stop()
}

// ticks returns how many ticks a timeout lasts, at least; 0 for none.
func (w *watch) ticks(timeout time.Duration) int64 {
	if timeout <= 0 {
		return 0
	}
	return int64((timeout+w.interval-1)/w.interval) + 1
}

// waiting is what a connection is waiting for.
type waiting int64

const (
	// forNothing: it is at work.
	forNothing waiting = iota
	// forCommand: it is between commands.
	forCommand
	// forRest: of a command, a handshake or a password.
	forRest
	// forReader: the client is to read its answers.
	forReader
	// forEnd: all is said; the client is to close.
	forEnd

	waitingBits = 3
)

// wait notes what c waits for from the tick given on.
func (c *conn) wait(what waiting, since int64) {
	c.waits.Store(since<<waitingBits | int64(what))
}

// expire closes the connections that have waited for too long.
func (s *Server) expire() {
	now, o := s.clock.now.Load(), &s.options
	limits := [...]int64{
		forNothing: 0,
		forCommand: s.clock.ticks(o.IdleTimeout),
		forRest:    s.clock.ticks(o.ReadTimeout),
		forReader:  s.clock.ticks(o.WriteTimeout),
		forEnd:     s.clock.ticks(min(o.ReadTimeout, time.Second)),
	}
	s.each(func(c *conn) {
		noted := c.waits.Load()
		limit := limits[noted&(1<<waitingBits-1)]
		if limit > 0 && now-noted>>waitingBits >= limit {
			_ = c.raw.Close() // not that of TLS, which would wait to say goodbye
		}
	})
}
