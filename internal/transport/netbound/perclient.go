package netbound

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// PerClientOptions say how many connections a client may have, and who is one.
type PerClientOptions struct {
	Max int // how many connections of a client may be open at once. Required.
	// Client returns the network that counts as one client with addr, and false
	// for an address that may have any number. Required.
	Client func(addr netip.Addr) (netip.Prefix, bool)
	// Refused, if not nil, is told of every connection that is refused, by any number of goroutines
	Refused func(client netip.Prefix)
}

// Introduced is a connection that may learn from its first bytes who the client
// is, as by the PROXY protocol.
type Introduced interface {
	// Peer returns the address at the other end, without waiting for those
	// bytes, and whether that is the client's whatever they say.
	Peer() (addr net.Addr, isClient bool)
}

// PerClient is a listener that bounds how many connections a client has open at
// once, and closes those beyond it. Connections whose address is not one of IP,
// such as those of a Unix socket, are not bounded.
//
// Those that are [Introduced] are counted when they are first used, which their
// servers do in a goroutine of each, so that nobody waits for their first bytes.
//
// It has one lock, which each connection takes twice: when it comes and when it
// goes.
type PerClient struct {
	net.Listener
	options PerClientOptions
	refused atomic.Int64

	mu   sync.Mutex
	open map[netip.Prefix]int // none is 0
}

// NewPerClient bounds the connections that each client of l has.
func NewPerClient(l net.Listener, o PerClientOptions) *PerClient {
	return &PerClient{Listener: l, options: o, open: map[netip.Prefix]int{}}
}

// Refused returns how many connections were refused.
func (l *PerClient) Refused() int64 { return l.refused.Load() }

// Clients returns how many clients have connections that count.
func (l *PerClient) Clients() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// Accept returns the next connection of a client that may have one more.
func (l *PerClient) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &clientConn{Conn: nc, of: l}
		var peer net.Addr
		if in, ok := nc.(Introduced); ok {
			var isClient bool
			if peer, isClient = in.Peer(); !isClient {
				return c, nil
			}
		} else {
			peer = nc.RemoteAddr()
		}
		if c.once.Do(func() { c.enter(peer) }); !c.refused {
			return c, nil
		}
	}
}

// clientConn is a connection that takes one of the places of its client.
type clientConn struct {
	net.Conn
	of *PerClient

	once    sync.Once
	refused bool // known after once

	client netip.Prefix // valid while it has a place; guarded by of.mu
	closed bool         // guarded by of.mu
}

// begin takes a place, the first time that it is called. It reports false if
// there was none.
func (c *clientConn) begin() bool {
	c.once.Do(func() { c.enter(c.Conn.RemoteAddr()) })
	return !c.refused
}

// enter takes a place for the client at addr, or closes the connection.
func (c *clientConn) enter(addr net.Addr) {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return
	}
	client, bounded := c.of.options.Client(tcp.AddrPort().Addr().Unmap().WithZone(""))
	if !bounded || c.take(client) {
		return
	}
	c.refused = true
	c.of.refused.Add(1) // before its client can know of it
	_ = c.Conn.Close()
	if c.of.options.Refused != nil {
		c.of.options.Refused(client)
	}
}

// take takes a place of client if there is one. A connection that has been
// closed meanwhile needs none.
func (c *clientConn) take(client netip.Prefix) bool {
	l := c.of
	l.mu.Lock()
	defer l.mu.Unlock()
	switch n := l.open[client]; {
	case c.closed:
	case n >= l.options.Max:
		return false
	default:
		l.open[client] = n + 1
		c.client = client
	}
	return true
}

// Close implements net.Conn. Then it gives the place back.
func (c *clientConn) Close() error {
	err := c.Conn.Close()
	l := c.of
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.client.IsValid() {
		if n := l.open[c.client]; n > 1 {
			l.open[c.client] = n - 1
		} else {
			delete(l.open, c.client)
		}
	}
	c.client, c.closed = netip.Prefix{}, true
	return err
}

// Read implements net.Conn. To the server of a connection that is refused, the
// client has hung up.
func (c *clientConn) Read(p []byte) (int, error) {
	if !c.begin() {
		return 0, io.EOF
	}
	return c.Conn.Read(p)
}

func (c *clientConn) Write(p []byte) (int, error) {
	if !c.begin() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

func (c *clientConn) RemoteAddr() net.Addr {
	c.begin() // a refused one shows in logs all the same
	return c.Conn.RemoteAddr()
}

// CloseWrite closes the sending side, if the connection below is able to.
func (c *clientConn) CloseWrite() error { return CloseWrite(c.Conn) }
