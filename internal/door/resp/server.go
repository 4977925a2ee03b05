// Package resp is the door for Redis clients: CL.THROTTLE is compatible with redis-cell,
// HG.CHECK applies the rules, and commands that client libraries send on their own
// (HELLO, AUTH, CLIENT, COMMAND …) are answered as in Redis.
//
// It speaks RESP2 and RESP3, binary and inline, with any number of pipelined commands.
// The contract is in docs/redis-protocol.md. docs/decisions says why the server is our
// own.
package resp

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/internal/transport/ticks"
	"github.com/headgate/headgate/store"
)

// Server serves the Redis protocol. Make it with [New].
type Server struct {
	options  Options
	password [sha256.Size]byte
	commands map[string]*command // by upper-case name
	listed   []*command          // in the order of COMMAND
	local    bool                // the store is in this process
	base     context.Context     // that of all connections: done when they are cut off
	cut      context.CancelFunc
	accepts  context.Context // done when no more are accepted
	refuse   context.CancelFunc

	clock ticks.Clock // at which connections note that they begin to wait
	stats counters

	mu        sync.Mutex
	draining  bool
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	empty     chan struct{} // closed when draining and the last connection has gone

	lastID atomic.Int64 // written under mu
}

// counters are what Stats tells.
type counters struct{ accepted, rejected, evicted, commands, throttled, allowed, misled atomic.Int64 }

// Stats are what has happened so far.
type Stats struct {
	Connections, Accepted, Evicted, Rejected int64 // open now, ever, closed in favour of others, and without room
	Misled                                   int64 // Misled spoke HTTP, and were closed
	Commands                                 int64 // Commands were answered, of whatever kind
	ThrottleAllowed, ThrottleRefused         int64 // ThrottleAllowed and ThrottleRefused were answered by CL.THROTTLE.
}

// New returns a server. Call [Server.Shutdown] when done with it, also if it
// has not served.
func New(options Options) *Server {
	options.complete()
	s := &Server{
		options: options, password: sha256.Sum256([]byte(options.Password)),
		listeners: map[net.Listener]struct{}{}, conns: map[*conn]struct{}{}, empty: make(chan struct{}),
	}
	// A store in this process is asked one question at a time, since each is
	// answered at once; any other about all that have arrived together.
	_, s.local = options.Store.(store.Direct)
	s.base, s.cut = context.WithCancel(context.Background())
	s.accepts, s.refuse = context.WithCancel(s.base)
	s.listed = table()
	s.commands = make(map[string]*command, len(s.listed))
	for _, c := range s.listed {
		s.commands[c.upper()] = c
	}
	s.clock.Start(s.expire, options.ReadTimeout, options.WriteTimeout, options.IdleTimeout)
	return s
}

// Stats returns what has happened so far.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	open := len(s.conns)
	s.mu.Unlock()
	allowed := s.stats.allowed.Load()
	return Stats{
		Connections: int64(open), Accepted: s.stats.accepted.Load(), Rejected: s.stats.rejected.Load(),
		Evicted: s.stats.evicted.Load(), Misled: s.stats.misled.Load(),
		Commands: s.stats.commands.Load(), ThrottleAllowed: allowed, ThrottleRefused: s.stats.throttled.Load() - allowed,
	}
}

// Serve answers at l until Shutdown, and closes it. It returns nil after that.
func (s *Server) Serve(l net.Listener) error {
	if !s.listens(l) {
		return l.Close()
	}
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
		_ = l.Close() // Shutdown may have done so
	}()
	return netbound.AcceptAll(s.accepts, l, func(nc net.Conn) {
		if c := s.admit(nc); c != nil { // before the next, so that Shutdown knows of it
			go s.serve(c)
		}
	})
}

func (s *Server) listens(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.listeners[l] = struct{}{}
	return true
}

// ServeConn answers on nc until it ends, and closes it. It is for connections
// that something else has accepted; Serve does it by itself.
func (s *Server) ServeConn(nc net.Conn) {
	if c := s.admit(nc); c != nil {
		s.serve(c)
	}
}

// serve answers on c until it ends.
func (s *Server) serve(c *conn) {
	defer s.leave(c)
	c.run(s.base)
}

// admit returns a connection for nc, or turns it away and returns nil. If there
// is no room, that of the connection which has been silent for long is taken:
// whoever opens connections and says nothing is in nobody's way.
func (s *Server) admit(nc net.Conn) *conn {
	if s.options.TLS != nil {
		nc = tls.Server(nc, s.options.TLS)
	}
	s.mu.Lock()
	var victim *conn
	full := len(s.conns) >= s.options.MaxConnections ||
		len(s.conns) >= netbound.Spare && s.options.Full != nil && s.options.Full()
	if full && !s.draining {
		if victim = s.mostSilent(); victim != nil {
			delete(s.conns, victim)
			full = false
		}
	}
	if full || s.draining {
		s.mu.Unlock()
		if !full {
			_ = nc.Close()
			return nil
		}
		s.stats.rejected.Add(1)
		go s.turnAway(nc)
		return nil
	}
	c := newConn(s, nc, s.lastID.Add(1))
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	s.stats.accepted.Add(1)
	if victim != nil {
		s.stats.evicted.Add(1)
		_ = victim.raw.Close() // its goroutine notices
	}
	return c
}

// turnAway closes nc, and says that it is for want of room.
func (s *Server) turnAway(nc net.Conn) {
	if s.options.TLS == nil {
		// It fits into the buffer of a new connection; but that may wait until it is
		// known who is there.
		_, _ = io.WriteString(nc, "-ERR max number of clients reached\r\n")
	}
	_ = nc.Close()
}

// sample is how many connections are looked at to find one that has been silent
// for long. A map is walked in a random order, so they are a fair choice, and a
// flood costs the same however many there are.
const sample = 64

// mostSilent returns, of a sample, the connection that has been silent for
// longest, or nil if all are being answered. One that has just come goes last. It
// needs s.mu to be held.
func (s *Server) mostSilent() *conn {
	choice := netbound.Among[*conn](len(s.conns))
	looked := 0
	for c := range s.conns {
		if waiting(c.waits.Load()&(1<<waitingBits-1)) != forNothing {
			if heard := c.heard.Load(); heard > 0 {
				choice.Waits(c, heard)
			} else {
				choice.Unheard(c, c.id)
			}
		}
		looked++
		if _, found := choice.Longest(); looked >= sample && found || looked >= 16*sample {
			break
		}
	}
	if found, ok := choice.Longest(); ok {
		return found
	}
	found, _ := choice.Newest()
	return found
}

func (s *Server) leave(c *conn) {
	_ = c.net.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, counts := s.conns[c]; !counts {
		return // its place has been taken
	}
	delete(s.conns, c)
	if s.draining && len(s.conns) == 0 {
		close(s.empty)
	}
}

// each calls f for every connection.
func (s *Server) each(f func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		f(c)
	}
}

// Shutdown accepts no more connections, lets each answer the commands that have
// arrived, and closes it. When ctx is done it cuts off the rest and returns the
// error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.draining {
		s.draining = true
		s.refuse()
		for l := range s.listeners {
			_ = l.Close()
		}
		if len(s.conns) == 0 {
			close(s.empty)
		}
	}
	s.mu.Unlock()
	defer s.clock.Stop()
	defer s.cut()
	s.each(func(c *conn) { c.drain() })
	select {
	case <-s.empty:
		return nil
	case <-ctx.Done():
	}
	s.cut()
	s.each(func(c *conn) { _ = c.net.Close() })
	<-s.empty
	return ctx.Err()
}

// waiting is what a connection is waiting for.
type waiting int64

const (
	forNothing waiting = iota // it is at work
	forCommand                // it is between commands
	forRest                   // of a command, a handshake or a password
	forReader                 // the client is to read its answers
	forEnd                    // all is said; the client is to close

	waitingBits = 3
)

// wait notes what c waits for from the tick given on.
func (c *conn) wait(what waiting, since int64) {
	c.waits.Store(since<<waitingBits | int64(what))
}

// expire closes the connections that have waited for too long.
func (s *Server) expire() {
	now, o := s.clock.Now(), &s.options
	limits := [...]int64{
		forNothing: 0,
		forCommand: s.clock.Of(o.IdleTimeout),
		forRest:    s.clock.Of(o.ReadTimeout),
		forReader:  s.clock.Of(o.WriteTimeout),
		forEnd:     s.clock.Of(min(o.ReadTimeout, time.Second)),
	}
	s.each(func(c *conn) {
		noted := c.waits.Load()
		limit := limits[noted&(1<<waitingBits-1)]
		if limit > 0 && now-noted>>waitingBits >= limit {
			_ = c.raw.Close() // not that of TLS, which would wait to say goodbye
		}
	})
}
