package regions

import (
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/store"
)

// Stats is what a process knows of another region.
type Stats struct {
	Region string
	Acts   bool // this process acts for its own region; otherwise another one does
	// Given and Received are the tokens that this process gave to the region, and
	// received from it, since it started.
	Given, Received int64
	// Unacknowledged are tokens given that the region has not confirmed. Those that it
	// did not confirm for half a minute move to Unconfirmed: they may be lost, that is,
	// count as used without having been.
	Unacknowledged, Unconfirmed int64
	// Skipped is how many gifts and wishes of its messages could not be carried out, or not
	// in time, and how many messages are of a later release.
	Skipped int64
	// HasRead reports whether this process has read the region's messages, and Read how
	// long ago. Cut is for how long it has tried in vain since, or 0. Lag is how old
	// the oldest message was that was read the last time that there were any.
	HasRead        bool
	Read, Cut, Lag time.Duration
	// Err is what was wrong at the last interval. Other than Cut it can also be about
	// this region's own store.
	Err error
}

// Stats returns what this process knows of each other region. A process that does not act
// for its region reads nothing.
func (s *Store) Stats() []Stats {
	all := make([]Stats, 0, len(s.couriers))
	for _, c := range s.couriers {
		is := Stats{Region: c.peer, Acts: s.asker.office.Load() != nil, Given: c.counts.given.Load(), Received: c.counts.received.Load(), Skipped: c.counts.skipped.Load()}
		is.Unacknowledged, is.Unconfirmed = c.ledger.sums()
		now := c.clock()
		if at := c.counts.read.Load(); at != nil {
			is.HasRead, is.Read = true, now.Sub(*at)
		}
		if since := c.counts.cut.Load(); since != nil {
			is.Cut = max(now.Sub(*since), 1)
		}
		is.Lag = time.Duration(c.counts.lag.Load())
		if err := c.counts.err.Load(); err != nil {
			is.Err = *err
		}
		all = append(all, is)
	}
	return all
}

// Asked returns how many tokens this process has asked the other regions for that have
// not come yet.
func (s *Store) Asked() int64 { return max(s.demand.asked.Load(), 0) }

// counts counts what a courier does.
type counts struct {
	given, received, skipped atomic.Int64
	lag                      atomic.Int64              // nanoseconds
	read                     atomic.Pointer[time.Time] // when messages were last read
	cut                      atomic.Pointer[time.Time] // when they could not be read, the first time since; nil while they can
	err                      atomic.Pointer[error]
}

// heard notes whether the other region's messages could be read.
func (c *counts) heard(now time.Time, b *store.Messages, err error) {
	if err != nil {
		if c.cut.Load() == nil {
			c.cut.Store(&now)
		}
		return
	}
	c.read.Store(&now)
	c.cut.Store(nil)
	if len(b.Messages) > 0 {
		c.lag.Store(int64(max(b.Now.Sub(b.Messages[0].At), 0)))
	}
}

// ended notes how an interval ended.
func (c *counts) ended(err error) {
	if err == nil {
		c.err.Store(nil)
		return
	}
	c.err.Store(&err)
}

// rest notes that another process acts for this region.
func (c *counts) rest() {
	c.read.Store(nil)
	c.cut.Store(nil)
	c.err.Store(nil)
	c.lag.Store(0)
}

// Acts reports whether this process acts for its region; otherwise another one does.
func (s *Store) Acts() bool { return s.asker.office.Load() != nil }
