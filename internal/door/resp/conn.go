package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/store"
)

const (
	// firstInput is the initial size of a connection's buffer. It grows to fullInput
	// if the client sends faster than it is answered. Only a larger command takes
	// more, out of Options.Buffers.
	firstInput = 4 << 10
	fullInput  = 16 << 10
	fullOutput = 8 << 10 // answers are sent at this size, even if more follow
	keptArgs   = 256     // capacity for arguments that is kept between commands
	// maxLinger is how much input is read and dropped after a final error. Closing
	// with unread input would reset the connection and lose the error.
	maxLinger = 1 << 20
)

// conn is one connection. Only the goroutine that runs it may use the fields, except
// waits, heard, draining and evicted.
type conn struct {
	server *Server
	net    net.Conn
	raw    net.Conn // net, or the connection under its TLS
	id     int64
	waits  atomic.Int64 // see wait
	heard  atomic.Int64 // Server.lastID when the client last sent something; 0 before

	draining atomic.Bool
	evicted  atomic.Pointer[large] // set if its memory is needed for others
	name     string

	in         []byte
	large      *large // its share of Options.Buffers, or nil
	start, end int    // of the input that is not processed yet
	parser     parser
	reply
	at      int64 // the time of the commands that arrived together
	authed  bool
	closing bool
	until   time.Time // when to close; set once it has noticed drain
	said    bool      // whether something arrived since
	wrong   int       // wrong passwords so far
	first   int64     // the tick when the current command, handshake or login started

	commands, throttled, allowed int64 // since the last flush

	limits *limitCache
	batch  batch
	checks []described.Check
	names  map[string]rules.Attribute
}

func newConn(s *Server, nc net.Conn, id int64) *conn {
	c := &conn{server: s, net: nc, raw: belowTLS(nc), id: id, authed: s.options.Password == ""}
	c.proto = resp2
	c.parser.bounds = bounds{args: s.options.MaxArgs, bulk: s.options.MaxBulk, command: s.options.MaxCommand}
	c.parser.unauthenticated = !c.authed
	c.first = s.clock.Now()
	c.wait(forRest, c.first)
	return c
}

// belowTLS returns the connection under the TLS of nc, also if the TLS itself is
// wrapped, or nc if it is not encrypted. Closing it never waits for the peer.
func belowTLS(nc net.Conn) net.Conn {
	if encrypted, ok := netbound.Layer[*tls.Conn](nc); ok {
		return encrypted.NetConn()
	}
	return nc
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
		// drain sets draining before it interrupts the read, so one of them is noticed.
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

// lastWords is how long a draining connection is still read. Commands sent before may
// be about to arrive, and a client that gets no answer cannot know whether its command
// was counted.
const lastWords = 50 * time.Millisecond

// hearsOut reports whether a draining connection continues to read. It stops when it
// has answered what was sent, or when nothing arrives for lastWords.
func (c *conn) hearsOut(between bool) bool {
	now := time.Now() //nolint:forbidigo // connection deadlines use the real clock
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

// interrupted reports whether err means that drain interrupted a read.
func (c *conn) interrupted(err error) bool {
	return c.draining.Load() && errors.Is(err, os.ErrDeadlineExceeded)
}

// drain makes the connection close once it has answered.
func (c *conn) drain() {
	c.draining.Store(true)
	// Interrupt a read: any time in the past will do.
	_ = c.net.SetReadDeadline(time.Unix(1, 0))
}

// process answers all commands that have arrived, and reports whether the connection
// stays open.
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
				c.parser.args = nil // before flush may wait for the client
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
		case len(c.parser.args) > 0: // an empty command gets no answer
			c.dispatch(ctx)
			c.commands++
		}
		c.start += n
		if !stranger || c.authed {
			// The time of the next command starts now.
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

// flush sends the answers so far. It reports false if the connection is broken.
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

// linger lets the client read the last answer before the connection is closed.
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

// room makes space in the buffer for the next read, after one of n bytes, and frees
// the memory of a large command. It reports false if the connection has to close
// because there is no memory.
func (c *conn) room(ctx context.Context, n int) bool {
	filled := n > 0 && c.end == len(c.in)
	if c.start > 0 {
		copy(c.in, c.in[c.start:c.end])
		c.start, c.end = 0, c.end-c.start
	}
	switch {
	case c.end == len(c.in): // one command fills it and is not complete
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

// arg returns an argument of the command. It is valid until the command is answered.
func (c *conn) arg(i int) []byte {
	s := c.parser.args[i]
	return c.in[c.start+int(s.from) : c.start+int(s.to)]
}

// text returns a copy of an argument.
func (c *conn) text(i int) string { return string(c.arg(i)) }

// batch collects CL.THROTTLE operations for one call to a remote store.
type batch struct {
	ops []store.Op
	out []store.Decision
}

// noMemory is the answer to a command that does not fit in Options.Buffers.
const noMemory = "ERR too many large commands are being received; try again"

// large is the share of Options.Buffers that a large command takes while it arrives.
type large struct {
	conn    *conn
	account *membound.Account
	since   time.Time
	held    int64 // used by the connection's goroutine only
}

// Slow implements [membound.Holder].
func (l *large) Slow(now time.Time, held int64) int64 {
	if waiting(l.conn.waits.Load()&(1<<waitingBits-1)) != forRest {
		return 0
	}
	return held * now.Sub(l.since).Milliseconds()
}

// Evict implements [membound.Holder]. It interrupts the connection's read, and the
// connection then refuses the command.
func (l *large) Evict() {
	l.conn.evicted.Store(l)
	_ = l.conn.net.SetReadDeadline(time.Unix(1, 0))
}

// makesRoom drops the current command if err comes from Evict. It reports whether the
// connection stays open.
func (c *conn) makesRoom(ctx context.Context, err error) bool {
	l := c.evicted.Swap(nil)
	if l == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	_ = c.net.SetReadDeadline(time.Time{}) // before draining is checked, which sets its own
	return l != c.large || c.tooMuch(ctx)
}

// takes returns how much of Options.Buffers the connection needs with a buffer of size
// bytes: the buffer if it is large, and the argument list if it is long.
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

// count sets the connection's share of Options.Buffers to total. It reports false if
// that does not fit.
func (c *conn) count(total int64) bool {
	switch {
	case total == 0:
		if c.large != nil {
			c.large.account.Close()
			c.large = nil
		}
		return true
	case c.large == nil:
		c.large = &large{conn: c, since: time.Now()} //nolint:forbidigo // slow clients are measured on the real clock
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

// tooMuch refuses the command that is arriving, since there is no memory for it, and
// drops the rest as it arrives. The connection closes if the start of the next command
// cannot be found. It reports whether the connection stays open.
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
	n, _ := c.parser.next(c.in[c.start:c.end]) // skip what has arrived of it
	rest := c.in[c.start+n : c.end]
	c.in = make([]byte, max(firstInput, len(rest)))
	c.start, c.end = 0, copy(c.in, rest)
	c.count(0)
	return c.process(ctx) && c.room(ctx, 0)
}
