package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/door/verdict"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/transport/membound"
)

const (
	// firstInput is the size of a connection's buffer at first, fullInput what
	// it grows to if the client sends faster than is answered. Only a command
	// that is larger takes more, out of Options.Buffers.
	firstInput = 4 << 10
	fullInput  = 16 << 10
	fullOutput = 8 << 10 // when answers are sent though there are more to come
	keptArgs   = 256     // how many arguments of room are kept between commands
	// maxLinger is how much is read from a client that is to be told of its
	// mistake: to close with input unread would take the answer away from it.
	maxLinger = 1 << 20
)

// conn is one connection. All but waits, heard, draining and name belongs to the
// goroutine that runs it.
type conn struct {
	server *Server
	net    net.Conn
	raw    net.Conn // net, or what is below its encryption
	id     int64
	since  time.Time
	waits  atomic.Int64 // see wait
	heard  atomic.Int64 // how many connections there had been when it last sent something; 0 before

	draining atomic.Bool
	evicted  atomic.Pointer[large] // what others need
	name     string                // guarded by server.mu

	in         []byte
	large      *large // what it takes of Options.Buffers; nil for nothing
	start, end int    // of what has been read and not been done with
	parser     parser
	reply
	at      int64 // the time of the commands that arrived together
	authed  bool
	closing bool
	until   time.Time // when it is to end, once it has seen drain
	said    bool      // whether something came since
	wrong   int       // passwords
	first   int64     // the tick at which it began to owe the rest of something

	commands, throttled, allowed int64 // since the last flush

	limits *limitCache
	batch  batch
	checks []verdict.Check
	names  map[string]rules.Attribute
}

func newConn(s *Server, nc net.Conn, id int64) *conn {
	c := &conn{server: s, net: nc, raw: belowTLS(nc), id: id, authed: s.options.Password == ""}
	if s.options.Clock != nil {
		c.since = s.options.Clock()
	}
	c.proto = resp2
	c.parser.bounds = bounds{args: s.options.MaxArgs, bulk: s.options.MaxBulk, command: s.options.MaxCommand}
	c.parser.stranger = !c.authed
	c.first = s.clock.Now()
	c.wait(forRest, c.first)
	return c
}

// belowTLS returns what an encrypted connection is made of, also if the
// encryption is below something else; or nc itself if it is not encrypted. To
// close that does not wait for anybody.
func belowTLS(nc net.Conn) net.Conn {
	for at := nc; ; {
		below, ok := at.(interface{ NetConn() net.Conn })
		if !ok {
			return nc
		}
		_, encrypted := at.(*tls.Conn)
		if at = below.NetConn(); encrypted {
			return at
		}
	}
}

// run answers until the connection ends.
func (c *conn) run(ctx context.Context) {
	if encrypted, ok := c.net.(*tls.Conn); ok {
		if err := encrypted.HandshakeContext(ctx); err != nil {
			return
		}
	}
	clock := &c.server.clock
	c.in = make([]byte, firstInput)
	defer func() { c.count(0) }()
	for {
		between := c.authed && c.start == c.end && c.parser.left == 0
		if between {
			c.wait(forCommand, clock.Now())
		} else {
			c.wait(forRest, c.first)
		}
		// After wait: either drain sees that this reads, or this sees drain.
		if c.draining.Load() && !c.hearsOut(between) {
			return
		}
		n, err := c.net.Read(c.in[c.end:])
		if n > 0 {
			c.end += n
			c.said = !c.until.IsZero()
			c.heard.Store(c.server.lastID.Load())
			if between {
				c.first = clock.Now()
			}
			if !c.process(ctx) || !c.room(ctx, n) {
				return
			}
		}
		if err != nil && !c.interrupted(err) && !c.makesRoom(ctx, err) {
			return
		}
	}
}

// lastWords is how long a connection that is to end is listened to: commands
// that were sent before may have arrived, or be about to, and a client whose
// command is met by the end cannot know whether it has counted.
const lastWords = 50 * time.Millisecond

// hearsOut reports whether a connection that is to end reads on: until it has
// answered what had been sent, or nothing comes.
func (c *conn) hearsOut(between bool) bool {
	now := time.Now() //nolint:forbidigo // a deadline of a connection is of the real clock
	switch {
	case c.until.IsZero():
		c.until = now.Add(lastWords)
	case between && c.said:
		_ = c.raw.SetReadDeadline(now.Add(lastWords))
		c.linger()
		return false
	case !now.Before(c.until):
		return false
	}
	_ = c.net.SetReadDeadline(c.until)
	return true
}

// interrupted reports whether err only says that drain has woken a read up.
func (c *conn) interrupted(err error) bool {
	return c.draining.Load() && errors.Is(err, os.ErrDeadlineExceeded)
}

// drain makes the connection end when it has answered.
func (c *conn) drain() {
	c.draining.Store(true)
	// Wake it up if it is reading. The time is any that has passed.
	_ = c.net.SetReadDeadline(time.Unix(1, 0))
}

// process answers all commands that have arrived, and reports whether the
// connection goes on.
func (c *conn) process(ctx context.Context) bool {
	c.wait(forNothing, 0)
	c.at = 0
	if clock := c.server.options.Clock; clock != nil {
		c.at = clock().UnixMicro()
	}
	stranger := !c.authed
	for !c.closing {
		n, s := c.parser.next(c.in[c.start:c.end])
		if s == partial {
			c.start += n
			c.settle(ctx)
			if c.parser.left == 0 && cap(c.parser.args) > keptArgs {
				c.parser.args = nil // before it waits for a reader
			}
			if !c.count(c.takes(len(c.in))) {
				return c.tooMuch(ctx)
			}
			return c.flush()
		}
		switch {
		case s != complete:
			c.settle(ctx)
			c.fail(c.parser.complaint)
			c.closing = s == broken
		case len(c.parser.args) > 0: // an empty one has no answer
			c.dispatch(ctx)
			c.commands++
		}
		c.start += n
		if !stranger || c.authed {
			// What may follow is another command, which begins now.
			c.first = c.server.clock.Now()
		}
		if len(c.out) >= fullOutput && !c.flush() {
			return false
		}
	}
	c.settle(ctx)
	if c.flush() {
		c.linger()
	}
	return false
}

// flush sends what has been answered so far.
func (c *conn) flush() bool {
	stats := &c.server.stats
	stats.commands.Add(c.commands)
	if c.throttled > 0 {
		stats.throttled.Add(c.throttled)
		stats.allowed.Add(c.allowed)
	}
	c.commands, c.throttled, c.allowed = 0, 0, 0
	if len(c.out) == 0 {
		return true
	}
	c.wait(forReader, c.server.clock.Now())
	_, err := c.net.Write(c.out)
	c.wait(forNothing, 0)
	c.out = c.out[:0]
	return err == nil
}

// linger lets the client read the last answer before the connection goes.
func (c *conn) linger() {
	half, ok := c.raw.(interface{ CloseWrite() error })
	if !ok {
		return
	}
	if encrypted, is := c.net.(interface{ CloseWrite() error }); is && c.net != c.raw {
		_ = encrypted.CloseWrite()
	}
	if half.CloseWrite() != nil {
		return
	}
	c.wait(forEnd, c.server.clock.Now())
	for total := 0; total < maxLinger; {
		n, err := c.raw.Read(c.in)
		if err != nil {
			return
		}
		total += n
	}
}

// room makes room for the next read after one of n bytes, and lets go of what a
// giant took. It reports false if the connection ends for want of room.
func (c *conn) room(ctx context.Context, n int) bool {
	filled := n > 0 && c.end == len(c.in)
	if c.start > 0 {
		copy(c.in, c.in[c.start:c.end])
		c.start, c.end = 0, c.end-c.start
	}
	switch {
	case c.end == len(c.in): // one command has filled it, and goes on
		size := 2 * len(c.in)
		if !c.count(c.takes(size)) {
			return c.tooMuch(ctx)
		}
		c.resize(size)
	case filled && len(c.in) < fullInput:
		c.resize(2 * len(c.in))
	case c.end == 0 && len(c.in) > fullInput:
		c.resize(firstInput)
	}
	if c.end == 0 {
		if cap(c.out) > 4*fullOutput {
			c.out = nil
		}
		if cap(c.parser.args) > keptArgs {
			c.parser.args = nil
		}
		c.count(c.takes(len(c.in)))
	}
	return true
}

func (c *conn) resize(size int) {
	grown := make([]byte, size)
	copy(grown, c.in[:c.end])
	c.in = grown
}

// arg returns an argument of the command. It is good until the command has been
// answered.
func (c *conn) arg(i int) []byte {
	s := c.parser.args[i]
	return c.in[c.start+int(s.from) : c.start+int(s.to)]
}

// text returns an argument as a string of its own.
func (c *conn) text(i int) string { return string(c.arg(i)) }

// batch are questions of CL.THROTTLE that a store elsewhere is yet to be asked.
type batch struct {
	ops []headgate.Op
	out []headgate.Decision
}

// noMemory is what is answered to a command that there is no room for.
const noMemory = "ERR too many large commands are being received; try again"

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
