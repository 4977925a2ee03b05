package netbound

import (
	"context"
	"net"
	"net/http"
	"time"
)

// What conn.idle is besides a time, in nanoseconds since 1970. The time is not
// asked for before somebody wants to know it.
const (
	notHTTP   = iota // or nothing is known yet
	forSince         // idle since before Quiet
	hasAnswer = -1   // at work
)

// Follow notes what a server of net/http is doing with a connection, for Quiet
// alone: it is for servers behind a port that has others too.
func (l *Listener) Follow(nc net.Conn, state http.ConnState) { l.follow(find(nc), state) }

func (l *Listener) follow(c *conn, state http.ConnState) {
	switch {
	case c == nil:
	case state != http.StateNew && state != http.StateIdle:
		c.idle.Store(hasAnswer)
	case l.quieting.Load():
		c.idle.Store(time.Now().UnixNano()) //nolint:forbidigo // sockets go by the real clock
	default:
		c.idle.Store(forSince)
	}
}

// quietTick is how often it is seen whether all is quiet.
const quietTick = 5 * time.Millisecond

// Quiet waits until every connection of a server of net/http has gone, or has been
// idle for so long since Quiet began: then a server that stops may close those
// that are left, for no client is about to send a request on them. It waits twice
// that time at most, for those at work to become idle, and not beyond ctx. The
// answers should ask clients to close meanwhile.
func (l *Listener) Quiet(ctx context.Context, idle time.Duration) {
	begin := time.Now() //nolint:forbidigo // sockets go by the real clock
	ctx, cancel := context.WithDeadline(ctx, begin.Add(2*idle))
	defer cancel()
	l.quieting.Store(true)
	tick := time.NewTicker(quietTick) //nolint:forbidigo // as above
	defer tick.Stop()
	for now := begin; !l.isQuiet(begin, now.Add(-idle)); {
		select {
		case now = <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// isQuiet reports whether every connection has been idle since before a time.
// Those that were so before begin count from then.
func (l *Listener) isQuiet(begin, since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	late := begin.After(since)
	for c := range l.conns {
		switch at := c.idle.Load(); {
		case at == notHTTP:
		case at == hasAnswer, at == forSince && late, at > forSince && at > since.UnixNano():
			return false
		}
	}
	return true
}
