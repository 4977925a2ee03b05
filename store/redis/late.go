package redis

import (
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/store"
)

// A server that stands still executes what has waited meanwhile when it goes on: also takes
// of slots whose callers have left. Nobody would release these slots, so a take or renewal
// says until when, by the server's clock, its caller waits, and is not executed later. The
// server's answer to one that is too late has its time, as one about calendar windows has; if
// its caller still waits, the clocks differ, and it is sent again.

// serverClock is what is known of the clock of the servers.
type serverClock struct {
	known atomic.Bool
	ahead atomic.Int64 // of this process's clock, in microseconds
}

// clockNoise is by how much, in microseconds, answers may differ in what they say of the clock.
const clockNoise = 1000

// learn is called when an answer arrives that the server has made at a time by its clock.
func (c *serverClock) learn(at int64) {
	ahead := at - time.Now().UnixMicro() //nolint:forbidigo // deadlines are on the real clock
	if was := c.ahead.Load(); !c.known.Load() || ahead < was-clockNoise || ahead > was+clockNoise {
		c.ahead.Store(ahead)
		c.known.Store(true)
	}
}

// at returns what the servers' clock shows at t, or 0 if that is not known.
func (c *serverClock) at(t time.Time) int64 {
	if !c.known.Load() {
		return 0
	}
	return min(max(t.UnixMicro()+c.ahead.Load(), 1), maxTime)
}

// holds reports whether op can begin a lease.
func holds(op *store.Op) bool {
	if op.Rule.Algorithm != store.Concurrency {
		return false
	}
	return op.Kind == store.KindTake || op.Kind == store.KindTakeUpTo || op.Kind == store.KindCharge || op.Kind == store.KindRenew
}

// serverTime returns the server's time, and learns from it, if the answer is just that.
func (s *Store) serverTime(r *reply) (at int64, skewed bool) {
	if at, skewed = r.serverTime(); skewed {
		s.clock.learn(at)
	}
	return at, skewed
}

// told learns from the name of a new lease, which is the server's time.
func (s *Store) told(op *store.Op, d *store.Decision) {
	if d.Lease > 0 && holds(op) && !s.callerTime(op) {
		s.clock.learn(d.Lease)
	}
}
