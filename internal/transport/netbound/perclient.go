package netbound

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// PerClientOptions configure a [PerClient].
type PerClientOptions struct {
	Max int // open connections of a client; required
	// Client returns the network that counts as one client with addr, or false for an
	// address without a limit. Required.
	Client func(addr netip.Addr) (netip.Prefix, bool)
	// Refused is called for every refused connection, concurrently. May be nil.
	Refused func(client netip.Prefix)
}

// Introduced is a connection that may learn its client from its first bytes, as with the
// PROXY protocol.
type Introduced interface {
	// Peer returns the address of the peer, without waiting for those bytes, and whether
	// the peer is the client in any case.
	Peer() (addr net.Addr, isClient bool)
}

// PerClient is a listener that limits how many connections a client has open. It closes
// those beyond the limit. Connections without an IP address, such as those of a Unix
// socket, are not limited.
//
// An [Introduced] connection is counted when it is first used, in its own goroutine, so
// Accept never waits for its first bytes.
//
// Each connection takes the lock twice: when it is counted and when it is closed.
type PerClient struct {
	net.Listener
	options PerClientOptions
	refused atomic.Int64

	mu   sync.Mutex
	open map[netip.Prefix]int // never 0
}

// NewPerClient limits the connections of each client of l.
func NewPerClient(l net.Listener, o PerClientOptions) *PerClient {
	return &PerClient{Listener: l, options: o, open: map[netip.Prefix]int{}}
}

// Refused returns how many connections were refused.
func (l *PerClient) Refused() int64 { return l.refused.Load() }

// Clients returns how many clients have counted connections.
func (l *PerClient) Clients() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// Accept returns the next connection of a client below its limit.
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

// clientConn is a connection that is counted for its client.
type clientConn struct {
	net.Conn
	of *PerClient

	once    sync.Once
	refused bool // known after once

	client netip.Prefix // valid while it is counted; guarded by of.mu
	closed bool         // guarded by of.mu
}

// begin counts the connection when it is first called. It reports false if it is refused.
func (c *clientConn) begin() bool {
	c.once.Do(func() { c.enter(c.Conn.RemoteAddr()) })
	return !c.refused
}

// enter counts the connection for the client at addr, or closes it.
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
	c.of.refused.Add(1) // before the client can notice
	_ = c.Conn.Close()
	if c.of.options.Refused != nil {
		c.of.options.Refused(client)
	}
}

// take counts the connection for client, unless it is already closed. It reports false if
// the client is at its limit.
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

// Close implements net.Conn. The connection no longer counts.
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

// Read implements net.Conn. For the server of a refused connection, the client has
// disconnected.
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
	c.begin() // even a refused one needs it, for logs
	return c.Conn.RemoteAddr()
}

// NetConn returns the connection below.
func (c *clientConn) NetConn() net.Conn { return c.Conn }

// CloseWrite closes the sending side if the connection below supports it.
func (c *clientConn) CloseWrite() error { return CloseWrite(c.Conn) }
