package proxyproto

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/base/enum"
	"github.com/headgate/headgate/internal/transport/netbound"
)

// conn is a connection that may begin with a header.
type conn struct {
	net.Conn
	options *Options

	once   sync.Once
	err    error  // of the header; the connection is closed then. io.EOF if it just ended
	rest   []byte // what arrived behind the header and nobody has read
	remote net.Addr
	local  net.Addr

	mu       sync.Mutex // for the deadlines
	reading  bool       // a header
	limit    time.Time  // for the header
	deadline time.Time  // as the user of the connection wants it
}

func (c *conn) Read(b []byte) (int, error) {
	if err := c.begin(); err != nil {
		return 0, err
	}
	if len(c.rest) > 0 {
		n := copy(b, c.rest)
		if c.rest = c.rest[n:]; len(c.rest) == 0 {
			c.rest = nil
		}
		return n, nil
	}
	return c.Conn.Read(b)
}

func (c *conn) Write(b []byte) (int, error) {
	if err := c.begin(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// ReadFrom implements io.ReaderFrom, by which the kernel copies files and other
// connections by itself.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	if err := c.begin(); err != nil {
		return 0, err
	}
	return io.Copy(c.Conn, r)
}

// CloseWrite closes one direction, if the connection has two.
func (c *conn) CloseWrite() error {
	return netbound.CloseWrite(c.Conn)
}

// RemoteAddr returns the client's address. If the proxy knows none it is that
// of an unnamed Unix socket, "@": it must not be the proxy's, which is trusted
// with more than clients are.
func (c *conn) RemoteAddr() net.Addr {
	_ = c.begin() // its address shows in logs all the same
	if c.remote != nil {
		return c.remote
	}
	return c.Conn.RemoteAddr()
}

// Peer returns the address at the other end of the connection, and whether that
// is the client's, whatever header there is. It does not wait for one.
func (c *conn) Peer() (addr net.Addr, isClient bool) {
	addr = c.Conn.RemoteAddr()
	return addr, !c.options.trusts(addr)
}

// LocalAddr returns the address that the client connected to.
func (c *conn) LocalAddr() net.Addr {
	_ = c.begin()
	if c.local != nil {
		return c.local
	}
	return c.Conn.LocalAddr()
}

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn. While a header is read it can shorten
// the time for that, but not extend it.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	if c.reading {
		t = c.sooner()
	}
	return c.Conn.SetReadDeadline(t)
}

// sooner returns the nearer of the two deadlines. It needs c.mu.
func (c *conn) sooner() time.Time {
	if c.deadline.IsZero() || c.limit.Before(c.deadline) {
		return c.limit
	}
	return c.deadline
}

// setReading starts or ends the time for the header.
func (c *conn) setReading(limit time.Time, yes bool) error { //nolint:revive // it is what is stored
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading, c.limit = yes, limit
	if yes {
		return c.Conn.SetReadDeadline(c.sooner())
	}
	return c.Conn.SetReadDeadline(c.deadline)
}

// begin reads the header, once.
func (c *conn) begin() error {
	c.once.Do(func() {
		c.err = c.negotiate()
		if c.err == nil {
			return
		}
		c.rest = nil
		_ = c.Conn.Close() //nolint:staticcheck // c.Close would wait for this
		if c.options.Refused != nil && !errors.Is(c.err, io.EOF) {
			c.options.Refused(c.Conn.RemoteAddr(), c.err)
		}
	})
	return c.err
}

// negotiate reads the header and does what the options say about it.
func (c *conn) negotiate() error {
	limit := time.Now().Add(c.options.Timeout) //nolint:forbidigo // sockets know no other clock
	if err := c.setReading(limit, true); err != nil {
		return err
	}
	trusted := c.options.trusts(c.Conn.RemoteAddr())
	h, err := c.header()
	// A proxy may hang up right behind a header; its Read will say so.
	_ = c.setReading(time.Time{}, false)
	switch {
	case !trusted && (errors.Is(err, ErrNoHeader) || errors.Is(err, io.EOF)):
		return nil
	case err != nil:
		return err
	case !trusted && c.options.Untrusted == Refuse:
		return errors.New("PROXY header from a peer that is not in trusted_proxies")
	case trusted:
		c.believe(h)
	}
	return nil
}

// header reads until there is a header, or cannot be one. What was read too
// much stays in c.rest.
func (c *conn) header() (Header, error) {
	var buf []byte
	need := 1
	for {
		if cap(buf) < need {
			buf = append(make([]byte, 0, max(need, 256)), buf...)
		}
		n, err := io.ReadAtLeast(c.Conn, buf[len(buf):cap(buf)], need-len(buf))
		buf = buf[:len(buf)+n]
		h, length, parseErr := Parse(buf)
		switch {
		case parseErr == nil:
			c.rest = buf[length:]
			return h, nil
		case errors.Is(parseErr, ErrNoHeader):
			c.rest = buf
			return h, ErrNoHeader
		case !errors.Is(parseErr, ErrIncomplete):
			return h, parseErr
		case errors.Is(err, io.EOF) && len(buf) == 0:
			return h, io.EOF
		case err != nil && len(buf) < len(signature1):
			// Too short for any: a client that does not speak, or not much.
			c.rest = buf
			return h, fmt.Errorf("%w: %w", ErrNoHeader, reason(err))
		case err != nil:
			return h, fmt.Errorf("%w: %w", ErrIncomplete, reason(err))
		}
		need = length
	}
}

// reason says what a failed Read means here.
func reason(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("not received in time")
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

// believe makes h's addresses those of the connection.
func (c *conn) believe(h Header) {
	if h.Local {
		return
	}
	c.remote, c.local = &net.UnixAddr{Net: "unix", Name: "@"}, nil // a client without an address
	if h.Source.IsValid() {
		c.remote, c.local = net.TCPAddrFromAddrPort(h.Source), net.TCPAddrFromAddrPort(h.Destination)
	}
}

// DefaultTimeout is how long a header may take to arrive.
const DefaultTimeout = 5 * time.Second

// Untrusted says what becomes of a header from a peer that is not trusted.
// Without a header such a peer is served, and is the client itself.
type Untrusted uint8

// The ways.
const (
	Refuse Untrusted = iota // closes the connection. It is the default.
	Ignore                  // skips the header: the peer is the client
)

// String returns the name that the configuration uses: refuse or ignore.
func (u Untrusted) String() string { return enum.Name(u, "untrusted", "refuse", "ignore") }

// ParseUntrusted is the inverse of [Untrusted.String]. It reports false for any
// other text.
func ParseUntrusted(s string) (Untrusted, bool) { return enum.Parse(s, Ignore) }

// Options say whom to believe.
type Options struct {
	// Trusts reports whether a peer's word is believed. Of a peer that is
	// trusted a header is required: otherwise its clients could send one
	// themselves. Peers at a Unix socket, which have no address, are trusted:
	// the permissions of the socket say who may connect. Required.
	Trusts    func(peer netip.Addr) bool
	Untrusted Untrusted     // for headers of all others
	Timeout   time.Duration // how long a header may take; 0 means DefaultTimeout
	// Refused, if not nil, is told of every connection closed for its header, by any number of goroutines
	Refused func(peer net.Addr, err error)
}

// NewListener returns a listener whose connections have the addresses that
// their PROXY headers say. It closes l when it is closed.
//
// Accept never waits for a header. It is read when a connection is first used,
// by Read, Write, RemoteAddr or LocalAddr, so these are to be called in a
// goroutine of the connection.
func NewListener(l net.Listener, options Options) net.Listener {
	if options.Timeout <= 0 {
		options.Timeout = DefaultTimeout
	}
	return &listener{Listener: l, options: &options}
}

type listener struct {
	net.Listener
	options *Options
}

func (l *listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: nc, options: l.options}, nil
}

// trusts reports whether what peer says is believed.
func (o *Options) trusts(peer net.Addr) bool {
	switch peer := peer.(type) {
	case *net.TCPAddr:
		return o.Trusts(peer.AddrPort().Addr().Unmap().WithZone(""))
	case *net.UnixAddr:
		return true
	}
	return false
}
