package regions

import (
	"sync/atomic"
	"time"
)

// Stats is what a process knows of another region.
type Stats struct {
	Region string
	Acts   bool // this process acts for its own region; otherwise another one does
	// Given and Received are the tokens that this process gave to the region, and
	// received from it, since it started.
	Given, Received int64
	// HasRead reports whether this process has read the region's messages, and Read how
	// long ago. Err is why they could not be read after that.
	HasRead bool
	Read    time.Duration
	Err     error
}

// Stats returns what this process knows of each other region.
func (s *Store) Stats() []Stats {
	all := make([]Stats, 0, len(s.couriers))
	for _, c := range s.couriers {
		is := Stats{Region: c.peer, Acts: s.asker.office.Load() != nil, Given: c.counts.given.Load(), Received: c.counts.received.Load()}
		if at := c.counts.read.Load(); at != nil {
			is.HasRead, is.Read = true, c.clock().Sub(*at)
		}
		if err := c.counts.err.Load(); err != nil {
			is.Err = *err
		}
		all = append(all, is)
	}
	return all
}

// counts counts what a courier does.
type counts struct {
	given, received atomic.Int64
	read            atomic.Pointer[time.Time]
	err             atomic.Pointer[error]
}

func (c *counts) ended(now time.Time, err error) {
	if err != nil {
		c.err.Store(&err)
		return
	}
	c.read.Store(&now)
	c.err.Store(nil)
}
