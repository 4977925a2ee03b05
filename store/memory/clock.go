package memory

import (
	"time"

	"github.com/headgate/headgate/internal/base/fastclock"
	"github.com/headgate/headgate/internal/base/steady"
)

// clock is the time of the machine, or of WithClock.
type clock struct {
	injected func() time.Time // replaces everything else
	fast     fastclock.Clock
}

func (c *clock) start(system steady.System) { c.fast.Start(system) }

// now returns the time in microseconds since the Unix epoch.
func (c *clock) now() int64 {
	if c.injected != nil {
		return c.injected().UnixMicro()
	}
	return c.fast.Now()
}

// nowFetching is now, but also prefetches the cache line at address.
func (c *clock) nowFetching(address uintptr) int64 {
	if c.injected != nil {
		return c.injected().UnixMicro()
	}
	return c.fast.NowFetching(address)
}
