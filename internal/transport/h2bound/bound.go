// Package h2bound bounds what the streams of HTTP/2 connections keep in memory.
//
// A server of gRPC bounds the size of one message and the number of streams of
// one connection, which says little about their product: a client that sends
// all of many messages but their last bytes, or never reads the answers, makes
// it keep gigabytes for as long as it likes. So each connection is read along,
// frame by frame, and what all of them hold has a bound. Where it is reached,
// the connection that has kept most for long is closed, so that a flood takes
// nobody's place but its own. And a request has to arrive, and its answer to be
// read, within a time.
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
)

// Options are the bounds.
type Options struct {
	Room *membound.Bound // what the streams of all connections may keep, perhaps with others. Required.
	// StreamCost is what a stream takes whatever it sends, about: the memory of
	// the server and the stack of whoever answers; 0 is that of gRPC.
	StreamCost int
	// ReadTimeout is how long a request may take to arrive whole, WriteTimeout
	// how long it then may be until the client has read all of the answer.
	// Connections with a stream that takes longer are closed. 0 is for as long
	// as the server lets them.
	ReadTimeout, WriteTimeout time.Duration
	// Logger hears, once a minute at most, that connections are closed. Required.
	Logger *slog.Logger
}

// Stats are what has happened so far.
type Stats struct {
	Held          int64 // how many bytes are counted now, with those of others in the same room
	Slow, Evicted int64 // closed since a stream took too long, or since all together kept too much
}

// Bound bounds connections. Call [Bound.Stop] when done with it.
type Bound struct {
	options       Options
	slow, evicted atomic.Int64

	clock ticks.Clock

	mu    sync.Mutex // before that of a Conn
	conns map[*Conn]struct{}

	said atomic.Uint32 // the tick after the one at which it was last logged
}

// New returns a bound.
func New(o Options) *Bound {
	b := &Bound{options: o, conns: map[*Conn]struct{}{}}
	b.options.StreamCost = cmp.Or(o.StreamCost, streamCost)
	b.clock.Start(b.tick, o.ReadTimeout, o.WriteTimeout)
	return b
}

// Stop ends the watch over time. Connections that are left are no longer closed
// for being slow.
func (b *Bound) Stop() { b.clock.Stop() }

// now is the tick of now.
func (b *Bound) now() uint32 { return uint32(b.clock.Now()) }

// Stats returns what has happened so far.
func (b *Bound) Stats() Stats {
	return Stats{Held: b.options.Room.Held(), Slow: b.slow.Load(), Evicted: b.evicted.Load()}
}

// Wrap returns nc, on which a client of HTTP/2 is about to begin, with its
// streams counted. Raw is what nc is made of if it is encrypted, else nc: to
// close that does not wait for anybody.
func (b *Bound) Wrap(nc, raw net.Conn) *Conn {
	c := &Conn{Conn: nc, raw: raw, bound: b}
	c.in.skip = prefaceSize
	c.account = b.options.Room.Open(c, membound.AddrOf(raw.RemoteAddr()))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns[c] = struct{}{}
	return c
}

// tick closes what takes too long.
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
