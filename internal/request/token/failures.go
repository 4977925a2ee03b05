package token

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// quiet is how long further failures are only counted after one was logged.
const quiet = time.Minute

// Failures counts wrong tokens and passwords at a door. The log hears of the
// first, and then at most once a minute, with how many there were.
type Failures struct {
	log   *slog.Logger
	clock func() time.Time
	total atomic.Int64

	mu     sync.Mutex
	logged time.Time
	since  int64 // total when it was logged
}

// NewFailures returns a counter that logs to log.
func NewFailures(log *slog.Logger, clock func() time.Time) *Failures {
	return &Failures{log: log, clock: clock}
}

// Total returns how many there were. It is 0 for nil.
func (f *Failures) Total() int64 {
	if f == nil {
		return 0
	}
	return f.total.Load()
}

// Note counts one from an address. It does nothing for nil.
func (f *Failures) Note(remote string) {
	if f == nil {
		return
	}
	total, now := f.total.Add(1), f.clock()
	f.mu.Lock()
	say := f.logged.IsZero() || now.Sub(f.logged) >= quiet || now.Before(f.logged)
	before := f.since
	if say {
		f.logged, f.since = now, total
	}
	f.mu.Unlock()
	if say {
		f.log.Warn("wrong token or password", "remote", remote, "count", total-before)
	}
}
