// Package resp is the door for Redis clients: CL.THROTTLE is compatible with redis-cell,
// HG.CHECK applies the rules, and commands that client libraries send on their own
// (HELLO, AUTH, CLIENT …) are answered as in Redis.
//
// It speaks RESP2 and RESP3, binary and inline, with any number of pipelined commands.
// The contract is in docs/connect/redis-protocol.md; docs/decisions says why this is not a
// library.
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
	local    bool                // the store is in this process
	base     context.Context     // of all connections; canceled to cut them off
	cut      context.CancelFunc
	accepts  context.Context // canceled when no more are accepted
	refuse   context.CancelFunc

	clock ticks.Clock // for when connections started to wait
	stats counters

	mu        sync.Mutex
	draining  bool
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	empty     chan struct{} // closed when the last connection ends while draining

	lastID atomic.Int64 // written under mu
}

// counters are the counts of Stats.
type counters struct{ accepted, rejected, evicted, commands, throttled, allowed, misled atomic.Int64 }

// Stats are a server's counts since it started.
type Stats struct {
	Connections, Accepted, Evicted, Rejected int64 // open now; accepted; closed to make space; turned away
	Misled                                   int64 // closed because they spoke HTTP
	Commands                                 int64 // commands answered, of any kind
	ThrottleAllowed, ThrottleRefused         int64 // answers of CL.THROTTLE
}

// New returns a server. Call [Server.Shutdown] when done with it, even if it never
// served.
func New(options Options) *Server {
	options.complete()
	s := &Server{
		options: options, password: sha256.Sum256([]byte(options.Password)),
		listeners: map[net.Listener]struct{}{}, conns: map[*conn]struct{}{}, empty: make(chan struct{}),
	}
	// A store in this process is called for each command. A remote store, also one that
	// decides some limits here, is called once for all commands that arrived together.
	_, s.local = options.Store.(store.Direct)
	s.base, s.cut = context.WithCancel(context.Background())
	s.accepts, s.refuse = context.WithCancel(s.base)
	list := table()
	s.commands = make(map[string]*command, len(list))
	for _, c := range list {
		s.commands[c.upper()] = c
	}
	s.clock.Start(s.expire, options.ReadTimeout, options.WriteTimeout, options.IdleTimeout)
	return s
}

// Stats returns the current counts.
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

// Serve serves connections of l until Shutdown, then closes l and returns nil.
func (s *Server) Serve(l net.Listener) error {
	if !s.listens(l) {
		return l.Close()
	}
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
		_ = l.Close() // Shutdown may have closed it
	}()
	return netbound.AcceptAll(s.accepts, l, func(nc net.Conn) {
		if c := s.admit(nc); c != nil { // before the next Accept, so that Shutdown sees it
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

// ServeConn serves nc until it ends, and closes it. Use it for connections that were
// not accepted by Serve.
func (s *Server) ServeConn(nc net.Conn) {
	if c := s.admit(nc); c != nil {
		s.serve(c)
	}
}

// serve answers on c until the connection ends.
func (s *Server) serve(c *conn) {
	defer s.leave(c)
	c.run(s.base)
}

// admit returns a connection for nc, or closes nc and returns nil. If the server is
// full, nc replaces a connection that has long been silent, so a client that opens
// connections and sends nothing cannot block others.
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

// turnAway closes nc with an error: too many connections.
func (s *Server) turnAway(nc net.Conn) {
	if s.options.TLS == nil {
		// The text fits in a new connection's send buffer, but the write may first wait
		// for the peer's address, for example in a PROXY header.
		_, _ = io.WriteString(nc, "-ERR max number of clients reached\r\n")
	}
	_ = nc.Close()
}

// sample is how many connections are examined to find a silent one. Map order is
// random, so the sample is fair, and the cost does not grow with their number.
const sample = 64

// mostSilent returns the connection of a sample that has been silent for longest, or
// nil if all are being answered. One that has never sent anything is the last choice.
// s.mu is held.
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
		return // another connection has replaced it
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

// Shutdown stops accepting connections, answers the commands that have arrived, and
// closes the connections. When ctx is done, it closes the rest at once and returns the
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

// waiting is a reason why a connection waits.
type waiting int64

const (
	forNothing waiting = iota // it is answering
	forCommand                // the next command
	forRest                   // the rest of a command, handshake or login
	forReader                 // the client has to read its answers
	forEnd                    // the last answer is sent; the client has to close

	waitingBits = 3
)

// wait notes what c waits for, since the given tick.
func (c *conn) wait(what waiting, since int64) {
	c.waits.Store(since<<waitingBits | int64(what))
}

// expire closes connections that have waited too long.
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
			_ = c.raw.Close() // not TLS's Close, which would wait to send an alert
		}
	})
}
