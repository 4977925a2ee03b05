// Package netbound limits how many connections a listener has open.
//
// A limit that refused new connections could be used up by clients that open connections
// and send nothing. So a new connection replaces one that waits for its peer. It is only
// refused if all others are at work.
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

	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/internal/transport/unread"
)

// Policy is how waiting connections are recognized.
type Policy uint8

// The policies.
const (
	// ByState uses the states passed to [Listener.ConnState]. It is for net/http servers
	// whose requests may be long.
	ByState Policy = iota
	// ByRead treats every connection as waiting, since the last time it received
	// something. It is for short requests.
	ByRead
	// ByStateThenRead uses the states, and if all connections are at work, the last time
	// each received something. It is for net/http servers with short requests, so that
	// very slow ones can be replaced.
	ByStateThenRead
)

// Options configure a [Listener].
type Options struct {
	Max    int          // open connections; required
	Policy Policy       // recognizes waiting connections
	Logger *slog.Logger // logs when Max is reached, once until half of it is free again; required
	// Busy reports whether the listener should have no more connections, even below Max:
	// new ones then replace waiting ones. Up to [Spare] connections are always allowed.
	// May be nil.
	Busy func() bool
	// Unread ends connections whose clients do not read, on these terms. May be nil.
	Unread *unread.Watch
	Terms  unread.Terms
	// Heads bounds the memory of requests' headers that are arriving at a net/http server.
	// May be nil.
	Heads *membound.Bound
}

// Spare is how many connections a listener may have even when Busy, so that health probes
// get through.
const Spare = 16

// Stats are counts since the start, except Open.
type Stats struct {
	Open, Accepted    int64 // connections open now, and accepted in all
	Evicted, Rejected int64 // connections replaced by new ones, and refused since all were at work
}

// Listener limits the connections of another listener.
type Listener struct {
	net.Listener
	options Options

	accepted, evicted, rejected atomic.Int64

	quieting atomic.Bool // Quiet is running

	mu    sync.Mutex
	conns map[*conn]struct{}
	full  bool // the limit is reached, and logged
}

// New limits the connections of l.
func New(l net.Listener, o Options) *Listener {
	bound := &Listener{Listener: l, options: o, conns: map[*conn]struct{}{}}
	o.Unread.Add(bound)
	return bound
}

// Stats returns the current counts.
func (l *Listener) Stats() Stats {
	l.mu.Lock()
	open := len(l.conns)
	l.mu.Unlock()
	return Stats{
		Open: int64(open), Accepted: l.accepted.Load(), Evicted: l.evicted.Load(), Rejected: l.rejected.Load(),
	}
}

// Accept returns the next connection that is admitted. If accepting fails for lack of
// file descriptors, it closes a waiting connection for the next attempt.
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

// admit returns a connection for nc, or closes nc and returns nil.
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

// takeOut removes and returns the connection that has waited longest, or nil. The caller
// must pass it to evict, and hold l.mu.
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
	_ = victim.Conn.Close() // its server notices, and closes it again
}

// sacrifice closes the connection that has waited longest, if any.
func (l *Listener) sacrifice() {
	l.mu.Lock()
	victim := l.takeOut()
	l.mu.Unlock()
	if victim != nil {
		l.evict(victim)
	}
}

// sample is how many connections are checked to find one that has waited for long. Maps
// are iterated in random order, so the choice is fair, and its cost does not depend on
// their number.
const sample = 64

// longest returns, of a sample, the connection that has waited longest, or nil if none
// waits. New ones come last, as in [Choice], even after those at work if the policy
// allows closing these. It needs l.mu.
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

// ConnState records the state of a connection of a net/http server; use it as
// http.Server.ConnState. The connection may be wrapped by types with a method NetConn.
func (l *Listener) ConnState(nc net.Conn, state http.ConnState) {
	c := find(nc)
	l.follow(c, nc, state)
	switch {
	case c == nil:
	case state == http.StateNew || state == http.StateIdle:
		c.since.Store(l.accepted.Load())
	default:
		c.begun.Store(true)
		c.since.Store(0)
	}
}

// find returns the connection of this package that nc wraps, or nil.
func find(nc net.Conn) *conn {
	c, _ := Layer[*conn](nc)
	return c
}

// Layer returns the connection of type T that nc is or wraps: what wraps one has a method
// NetConn, as tls.Conn has.
func Layer[T net.Conn](nc net.Conn) (layer T, ok bool) {
	for nc != nil {
		if layer, ok = nc.(T); ok {
			return layer, true
		}
		wraps, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		nc = wraps.NetConn()
	}
	return layer, false
}

// handleKey is the key of the connection in the context of a request.
type handleKey struct{}

// ConnContext makes the connection available to [From]; use it as
// http.Server.ConnContext.
func (*Listener) ConnContext(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, handleKey{}, Handle{find(nc)})
}

// Handle is the connection of a request. The zero value has no connection, and its
// methods do nothing.
type Handle struct{ conn *conn }

// From returns the connection of the request with ctx.
func From(ctx context.Context) Handle {
	h, _ := ctx.Value(handleKey{}).(Handle)
	return h
}

// Waits marks the connection as waiting for its client, for example for more of a body.
// Until Works it may be replaced by a new one.
func (h Handle) Waits() {
	if h.conn != nil {
		h.conn.since.Store(h.conn.listener.accepted.Load())
	}
}

// Works ends Waits.
func (h Handle) Works() {
	if h.conn != nil {
		h.conn.since.Store(0)
	}
}

// conn is a counted connection.
type conn struct {
	net.Conn
	listener *Listener
	order    int64       // number of the connection
	begun    atomic.Bool // it has received a request
	// since is how many connections had been accepted when it started to wait; 0 while it
	// is at work. Only the order matters, and this needs no clock.
	since  atomic.Int64
	heard  atomic.Int64 // the same for the last time it received something; not used by ByState
	closed atomic.Bool
	// unasked is set while a net/http server waits for the first request.
	unasked atomic.Bool
	idle    atomic.Int64 // whether and since when a net/http server waits for a request; see follow

	head head

	reads, writes deadline
	sending
}

// NetConn returns the connection below.
func (c *conn) NetConn() net.Conn { return c.Conn }

func (c *conn) Close() error {
	if !c.closed.Swap(true) {
		c.listener.leave(c)
		c.head.end()
	}
	return c.Conn.Close()
}

// CloseWrite closes the sending side if the connection below supports it. Servers do this
// so that the peer can read an error before the connection is closed.
func (c *conn) CloseWrite() error { return CloseWrite(c.Conn) }

// CloseWrite closes the sending side of nc, or returns errors.ErrUnsupported. Connections
// that wrap others use it to pass the call on.
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
		c.may()
		if over := c.took(p[:n]); over != nil {
			return 0, over
		}
	}
	return n, err
}

// hears records that the connection received something.
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
	c.begin(c.listener.options.Unread)
	n, err = c.write(p)
	c.mark.Done()
	return n, err
}

func (c *conn) write(p []byte) (n int, err error) {
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

// young is how many new connections that have sent nothing yet are closed last; with few
// connections it is a part of them.
const (
	young     = 8
	youngPart = 4
)

// Choice finds the connection to close for a new one: that which has waited longest for
// its peer. New connections that have sent nothing yet, such as health probes, come after
// all others, but only the latest few: a flood of silent connections displaces itself.
type Choice[C any] struct {
	found offer[C]
	has   bool

	newest [young]offer[C] // by rising since
	n, max int
}

// Among starts a choice among that many connections.
func Among[C any](connections int) Choice[C] {
	return Choice[C]{max: min(young, connections/youngPart)}
}

// offer is a connection, and when it started to wait, in any unit.
type offer[C any] struct {
	conn  C
	since int64
}

// Waits offers a connection that has received something.
func (c *Choice[C]) Waits(conn C, since int64) {
	if !c.has || since < c.found.since {
		c.found, c.has = offer[C]{conn, since}, true
	}
}

// Unheard offers a connection that has received nothing yet.
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

// Longest returns the connection that has waited longest, apart from new ones.
func (c *Choice[C]) Longest() (conn C, ok bool) { return c.found.conn, c.has }

// Newest returns the oldest of the new connections.
func (c *Choice[C]) Newest() (conn C, ok bool) { return c.newest[0].conn, c.n > 0 }
