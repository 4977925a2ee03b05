// Package netbound bounds how many connections a listener has open at once, and
// makes room for new ones at the cost of those that do nothing.
//
// A bound that turned newcomers away could be filled by anybody who opens
// connections and says nothing. So a connection that waits for its peer is
// closed in favour of one that has just come; only if all are at work is the
// newcomer turned away.
package netbound

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Policy says how it is known that a connection waits.
type Policy uint8

// The policies.
const (
	// ByState goes by what [Listener.ConnState] is told. It is for servers of
	// net/http, whose requests may last long.
	ByState Policy = iota
	// ByRead takes every connection for one that waits, the longer the longer
	// ago something came from it. It is for requests that are short.
	ByRead
	// ByStateThenRead goes by what ConnState is told, and if all are at work
	// by when something came from them. It is for servers of net/http whose
	// requests are short, so that one that comes drop by drop keeps nobody out.
	ByStateThenRead
)

// Options are the bound and who hears of it.
type Options struct {
	Max    int          // how many connections may be open at once. Required.
	Policy Policy       // finds those that wait
	Logger *slog.Logger // hears when the bound is reached, once until half of it is free again. Required.
	// Busy, if not nil, reports whether there are not to be more connections
	// than there are, however much room there is: newcomers then take the places
	// of those that wait, as when the bound is reached. There may be [Spare] in
	// any case.
	Busy func() bool
}

// Spare is how many connections a listener may have however busy all is, so that
// probes of health find a place.
const Spare = 16

// Stats are what has happened so far.
type Stats struct {
	Open, Accepted    int64 // Open are the connections open now, Accepted those that ever were
	Evicted, Rejected int64 // closed in favour of others, or turned away since all were at work
}

// Listener is a bounded listener.
type Listener struct {
	net.Listener
	options Options

	accepted, evicted, rejected atomic.Int64

	quieting atomic.Bool // Quiet wants to know the time

	mu    sync.Mutex
	conns map[*conn]struct{}
	full  bool // it has been said
}

// New bounds l.
func New(l net.Listener, o Options) *Listener {
	return &Listener{Listener: l, options: o, conns: map[*conn]struct{}{}}
}

// Stats returns what has happened so far.
func (l *Listener) Stats() Stats {
	l.mu.Lock()
	open := len(l.conns)
	l.mu.Unlock()
	return Stats{
		Open: int64(open), Accepted: l.accepted.Load(), Evicted: l.evicted.Load(), Rejected: l.rejected.Load(),
	}
}

// Accept returns the next connection that there is room for. Where one could not
// be accepted, for want of a file descriptor, a silent one makes room for the
// next try.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			if passes(err) {
				l.sacrifice()
			}
			return nil, err
		}
		if c := l.admit(nc); c != nil {
			return c, nil
		}
	}
}

// admit returns a connection for nc, or closes it and returns nil.
func (l *Listener) admit(nc net.Conn) net.Conn {
	c := &conn{
		Conn: nc, listener: l,
		reads: deadline{tell: net.Conn.SetReadDeadline}, writes: deadline{tell: net.Conn.SetWriteDeadline},
	}
	c.order = l.accepted.Add(1)
	c.since.Store(c.order)
	c.heard.Store(c.order)
	l.mu.Lock()
	var victim *conn
	full := len(l.conns) >= l.options.Max
	busy := !full && len(l.conns) >= Spare && l.options.Busy != nil && l.options.Busy()
	if full || busy {
		victim = l.takeOut()
	}
	if admitted := !full && !busy || victim != nil; admitted {
		l.conns[c] = struct{}{}
	} else {
		c = nil
	}
	say := full && !l.full
	l.full = l.full || full
	l.mu.Unlock()
	if say {
		l.options.Logger.Warn("connection limit reached, closing idle connections", "max", l.options.Max)
	}
	switch {
	case c == nil:
		l.rejected.Add(1)
		_ = nc.Close()
		return nil
	case victim != nil:
		l.evict(victim)
	}
	return c
}

// takeOut takes out the connection that has waited for long, if one does, for evict.
// It needs l.mu to be held.
func (l *Listener) takeOut() *conn {
	victim := l.longest()
	if victim != nil {
		delete(l.conns, victim)
		victim.closed.Store(true)
	}
	return victim
}

func (l *Listener) evict(victim *conn) {
	l.evicted.Add(1)
	_ = victim.Conn.Close() // its server notices, and closes it once more
}

// sacrifice closes the connection that has waited for long, if one does.
func (l *Listener) sacrifice() {
	l.mu.Lock()
	victim := l.takeOut()
	l.mu.Unlock()
	if victim != nil {
		l.evict(victim)
	}
}

// sample is how many connections are looked at to find one that has waited for
// long. A map is walked in a random order, so they are a fair choice, and a
// flood costs the same however many there are.
const sample = 64

// longest returns, of a sample, the connection that has waited longest, or nil
// if none waits. One that has just come goes last, as [Choice] has it, also behind
// those at work where the policy closes those at all. It needs l.mu to be held.
func (l *Listener) longest() *conn {
	choice := Among[*conn](len(l.conns))
	looked := 0
	var atWork *conn
	for c := range l.conns {
		s := c.since.Load()
		switch begun := c.begun.Load(); {
		case s > 0 && begun:
			choice.Waits(c, s)
		case s > 0:
			choice.Unheard(c, c.order)
		}
		if s == 0 && (atWork == nil || c.heard.Load() < atWork.heard.Load()) {
			atWork = c
		}
		looked++
		if _, found := choice.Longest(); looked >= sample && found || looked >= 16*sample {
			break
		}
	}
	if found, ok := choice.Longest(); ok {
		return found
	}
	if atWork != nil && l.options.Policy == ByStateThenRead {
		return atWork
	}
	found, _ := choice.Newest()
	return found
}

func (l *Listener) leave(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	if 2*len(l.conns) <= l.options.Max {
		l.full = false
	}
}

// ConnState notes what a server of net/http is doing with a connection; it is
// for http.Server.ConnState. The connection may be wrapped by those that have a
// method NetConn.
func (l *Listener) ConnState(nc net.Conn, state http.ConnState) {
	c := find(nc)
	l.follow(c, state)
	switch {
	case c == nil:
	case state == http.StateNew || state == http.StateIdle:
		c.since.Store(l.accepted.Load())
	default:
		c.begun.Store(true)
		c.since.Store(0)
	}
}

// find returns the connection of a listener that nc is made of, or nil.
func find(nc net.Conn) *conn {
	for {
		switch c := nc.(type) {
		case *conn:
			return c
		case interface{ NetConn() net.Conn }: // such as *tls.Conn
			nc = c.NetConn()
		default:
			return nil
		}
	}
}

// handleKey finds the connection in the context of a request.
type handleKey struct{}

// ConnContext lets requests find their connection by [From]; it is for
// http.Server.ConnContext.
func (*Listener) ConnContext(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, handleKey{}, Handle{find(nc)})
}

// Handle is the connection of a request under way. The zero value is that of
// none, and all that is said to it is lost.
type Handle struct{ conn *conn }

// From returns the connection of the request with ctx.
func From(ctx context.Context) Handle {
	h, _ := ctx.Value(handleKey{}).(Handle)
	return h
}

// Waits says that the request waits for its client, as it does for the next
// piece of a body: until Works the connection is among those that may be closed
// in favour of others.
func (h Handle) Waits() {
	if h.conn != nil {
		h.conn.since.Store(h.conn.listener.accepted.Load())
	}
}

// Works says that it does so no more.
func (h Handle) Works() {
	if h.conn != nil {
		h.conn.since.Store(0)
	}
}

// conn is a connection that is counted.
type conn struct {
	net.Conn
	listener *Listener
	order    int64       // in which it was accepted
	begun    atomic.Bool // a request has come on it
	// since is how many connections had been accepted when it began to wait;
	// 0 while it is at work. That tells the order, which is all that matters,
	// and needs no clock.
	since  atomic.Int64
	heard  atomic.Int64 // how many had been when something last came from it; not kept by ByState
	closed atomic.Bool
	idle   atomic.Int64 // whether and since when a server of net/http waits for a request: see follow

	reads, writes deadline
}

// NetConn returns the connection below.
func (c *conn) NetConn() net.Conn { return c.Conn }

func (c *conn) Close() error {
	if !c.closed.Swap(true) {
		c.listener.leave(c)
	}
	return c.Conn.Close()
}

// CloseWrite closes the sending side, as servers do to let the peer read an
// error before the connection goes, if the connection below is able to.
func (c *conn) CloseWrite() error { return CloseWrite(c.Conn) }

// CloseWrite closes the sending side of nc, or returns errors.ErrUnsupported if
// it has none of its own. Connections made of others pass it on by this.
func CloseWrite(nc net.Conn) error {
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error { return c.reads.set(c.Conn, t) }

func (c *conn) SetWriteDeadline(t time.Time) error { return c.writes.set(c.Conn, t) }

func (c *conn) Read(p []byte) (n int, err error) {
	for early := true; early && n == 0; {
		if err = c.reads.begin(c); err != nil {
			return 0, err
		}
		n, err = c.Conn.Read(p)
		if early = c.reads.end(c.Conn, err); early && n > 0 {
			err = nil
		}
	}
	if n > 0 {
		c.hears()
	}
	return n, err
}

// hears notes that something came from the connection.
func (c *conn) hears() {
	switch c.listener.options.Policy {
	case ByRead:
		c.begun.Store(true)
		c.since.Store(c.listener.accepted.Load())
	case ByStateThenRead:
		c.heard.Store(c.listener.accepted.Load())
	case ByState:
	}
}

func (c *conn) Write(p []byte) (n int, err error) {
	for early := true; early; {
		if err = c.writes.begin(c); err != nil {
			return n, err
		}
		var some int
		some, err = c.Conn.Write(p[n:])
		n += some
		early = c.writes.end(c.Conn, err)
	}
	return n, err
}

// young is how many connections that have said nothing yet are closed last, and
// among few connections a part of them.
const (
	young     = 8
	youngPart = 4
)

// Choice finds which of the connections that wait for their peers is to be closed
// in favour of a newcomer: the one that has waited longest. Those that have just
// come and said nothing yet, as a probe of health has not, wait behind all others
// that are offered, but no more than the latest few: a flood of silent ones
// displaces itself.
type Choice[C any] struct {
	found offer[C]
	has   bool

	newest [young]offer[C] // by rising since
	n, max int
}

// Among begins a choice among that many connections.
func Among[C any](connections int) Choice[C] {
	return Choice[C]{max: min(young, connections/youngPart)}
}

// offer is a connection, and since when it has waited, in any unit.
type offer[C any] struct {
	conn  C
	since int64
}

// Waits offers a connection that has been heard of.
func (c *Choice[C]) Waits(conn C, since int64) {
	if !c.has || since < c.found.since {
		c.found, c.has = offer[C]{conn, since}, true
	}
}

// Unheard offers one that has said nothing yet.
func (c *Choice[C]) Unheard(conn C, since int64) {
	o := offer[C]{conn, since}
	if c.n == c.max {
		if c.n == 0 || since <= c.newest[0].since {
			c.Waits(conn, since)
			return
		}
		c.Waits(c.newest[0].conn, c.newest[0].since)
		copy(c.newest[:], c.newest[1:c.n])
		c.n--
	}
	i := c.n
	for ; i > 0 && c.newest[i-1].since > o.since; i-- {
		c.newest[i] = c.newest[i-1]
	}
	c.newest[i] = o
	c.n++
}

// Longest returns the one that has waited longest, but for those that have just
// come.
func (c *Choice[C]) Longest() (conn C, ok bool) { return c.found.conn, c.has }

// Newest returns the first that came of those that have just come.
func (c *Choice[C]) Newest() (conn C, ok bool) { return c.newest[0].conn, c.n > 0 }
