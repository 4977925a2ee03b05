package resp

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/headgate/headgate/internal/transport/membound"
)

// noMemory is what is answered to a command that there is no room for.
const noMemory = "ERR no memory for so large a command, too many are being received"

// large is what a large command takes of Options.Buffers while it arrives.
type large struct {
	conn    *conn
	account *membound.Account
	since   time.Time
	held    int64 // of the goroutine of the connection
}

// Slow implements [membound.Holder].
func (l *large) Slow(now time.Time, held int64) int64 {
	if waiting(l.conn.waits.Load()&(1<<waitingBits-1)) != forRest {
		return 0
	}
	return held * now.Sub(l.since).Milliseconds()
}

// Evict implements [membound.Holder]. The connection refuses the command when it
// wakes up.
func (l *large) Evict() {
	l.conn.evicted.Store(l)
	_ = l.conn.net.SetReadDeadline(time.Unix(1, 0))
}

// makesRoom lets go of a command in favour of others, if err only says that it is
// to, and reports whether the connection goes on.
func (c *conn) makesRoom(ctx context.Context, err error) bool {
	l := c.evicted.Swap(nil)
	if l == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	_ = c.net.SetReadDeadline(time.Time{}) // before the next look at draining, which sets its own
	return l != c.large || c.tooMuch(ctx)
}

// takes is how much of Options.Buffers the connection takes with a buffer of that
// size: the buffer if it is large, and the places of arguments if they are many.
func (c *conn) takes(size int) int64 {
	total := 0
	if size > fullInput {
		total = size
	}
	if args := cap(c.parser.args); args > keptArgs {
		total += args * spanSize
	}
	return int64(total)
}

// count makes that what is counted of Options.Buffers. It reports false if that is
// more than there is.
func (c *conn) count(total int64) bool {
	switch {
	case total == 0:
		if c.large != nil {
			c.large.account.Close()
			c.large = nil
		}
		return true
	case c.large == nil:
		c.large = &large{conn: c, since: time.Now()} //nolint:forbidigo // clients are slow on the real clock
		c.large.account = c.server.options.Buffers.Open(c.large, membound.AddrOf(c.net.RemoteAddr()))
	}
	more := total - c.large.held
	if more > 0 && !c.large.account.Take(more) {
		return false
	}
	if more < 0 {
		c.large.account.Took(more)
	}
	c.large.held = total
	return true
}

// tooMuch refuses the command that is arriving, since there is no room for it,
// and forgets it as it comes. The connection ends if it cannot be told where the
// next one begins.
func (c *conn) tooMuch(ctx context.Context) bool {
	if !c.parser.refuse(noMemory) {
		c.in, c.start, c.end = make([]byte, firstInput), 0, 0
		c.parser.args = nil
		c.count(0)
		c.fail(noMemory)
		if c.flush() {
			c.linger()
		}
		return false
	}
	n, _ := c.parser.next(c.in[c.start:c.end]) // what has come of it
	rest := c.in[c.start+n : c.end]
	c.in = make([]byte, max(firstInput, len(rest)))
	c.start, c.end = 0, copy(c.in, rest)
	c.count(0)
	return c.process(ctx) && c.room(ctx, 0)
}
