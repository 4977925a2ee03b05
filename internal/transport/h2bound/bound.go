// Package h2bound limits the memory of the streams of HTTP/2 connections.
//
// A gRPC server limits the size of a message and the number of streams of a connection,
// but not their product: a client that sends all but the last bytes of many messages, or
// never reads answers, makes the server hold gigabytes. So this package reads the frames
// of every connection and limits the memory of all streams together. When the limit is
// reached, it closes the connection that has held most for longest, so a flood only
// displaces itself. Requests must arrive, and answers must be read, within a timeout.
package h2bound

import (
	"cmp"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/internal/transport/ticks"
	"github.com/headgate/headgate/internal/transport/unread"
)

// Options are the limits.
type Options struct {
	// Room limits the memory of all streams, perhaps shared with others; nil for no limit.
	Room *membound.Bound
	// StreamCost is the approximate memory of a stream, in bytes, whatever it sends; 0
	// means that of gRPC.
	StreamCost int
	// ReadTimeout is how long a request may take to arrive. WriteTimeout is how long it
	// may then take until the client has read all of the answer. Connections with a
	// slower stream are closed. 0 means no timeout.
	ReadTimeout, WriteTimeout time.Duration
	// Unread ends answers that their clients do not read, on these terms. May be nil.
	Unread *unread.Watch
	Terms  unread.Terms
	// Logger logs closed connections, at most once a minute; required.
	Logger *slog.Logger
}

// Stats are counts since the start, except Held.
type Stats struct {
	Held          int64 // bytes held now by all users of Room
	Slow, Evicted int64 // connections closed because a stream took too long, or to free memory
}

// Bound limits connections. Call [Bound.Stop] when done.
type Bound struct {
	options       Options
	slow, evicted atomic.Int64

	clock ticks.Clock

	mu    sync.Mutex // before that of a Conn
	conns map[*Conn]struct{}

	said atomic.Uint32 // the tick after that of the last log entry
}

// New returns a Bound.
func New(o Options) *Bound {
	b := &Bound{options: o, conns: map[*Conn]struct{}{}}
	b.options.StreamCost = cmp.Or(o.StreamCost, streamCost)
	b.clock.Start(b.tick, o.ReadTimeout, o.WriteTimeout)
	o.Unread.Add(b)
	return b
}

// Stop ends the timeouts. Slow connections are no longer closed.
func (b *Bound) Stop() { b.clock.Stop() }

// now returns the current tick.
func (b *Bound) now() uint32 { return uint32(b.clock.Now()) }

// Stats returns the current counts.
func (b *Bound) Stats() Stats {
	var held int64
	if b.options.Room != nil {
		held = b.options.Room.Held()
	}
	return Stats{Held: held, Slow: b.slow.Load(), Evicted: b.evicted.Load()}
}

// Wrap returns nc, a new connection of an HTTP/2 client, with its streams counted. raw is
// the connection below the encryption of nc, or nc itself: closing it never blocks.
func (b *Bound) Wrap(nc, raw net.Conn) *Conn {
	c := b.WrapBegun(nc, raw)
	c.in.skip = prefaceSize
	return c
}

// WrapBegun is Wrap for a connection whose preface has been read.
func (b *Bound) WrapBegun(nc, raw net.Conn) *Conn {
	c := &Conn{Conn: nc, raw: raw, bound: b}
	c.tail.conn = c
	if b.options.Room != nil {
		c.account = b.options.Room.Open(c, membound.AddrOf(raw.RemoteAddr()))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns[c] = struct{}{}
	return c
}

// tick closes connections with a stream that took too long.
func (b *Bound) tick() {
	now, read, write := b.now(), uint32(b.clock.Of(b.options.ReadTimeout)), uint32(b.clock.Of(b.options.WriteTimeout))
	var late []*Conn
	b.mu.Lock()
	for c := range b.conns {
		if c.overdue(now, read, write) {
			late = append(late, c)
			delete(b.conns, c)
		}
	}
	b.mu.Unlock()
	for _, c := range late {
		b.slow.Add(1)
		c.settle()
		b.end(c, "a request was not received, or its answer not read, in time")
	}
}

// end closes a connection.
func (b *Bound) end(c *Conn, why string) {
	_ = c.raw.Close() // its server notices
	now, said := b.now(), b.said.Load()
	if (said == 0 || now >= said-1+uint32(time.Minute/b.clock.Interval)) && b.said.CompareAndSwap(said, now+1) {
		b.options.Logger.Warn("connection closed (logged once a minute)", "why", why, "remote", c.RemoteAddr().String())
	}
}

func (b *Bound) leave(c *Conn) {
	b.mu.Lock()
	delete(b.conns, c)
	b.mu.Unlock()
	c.settle()
}
