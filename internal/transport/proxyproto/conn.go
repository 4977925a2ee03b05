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

// conn is a connection that may start with a header.
type conn struct {
	net.Conn
	options *Options

	once   sync.Once
	err    error  // of the header, in which case the connection is closed; io.EOF if the peer closed it
	rest   []byte // unread bytes after the header
	remote net.Addr
	local  net.Addr

	mu       sync.Mutex // for the deadlines
	reading  bool       // the header
	limit    time.Time  // for the header
	deadline time.Time  // set by the user of the connection
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

// ReadFrom implements io.ReaderFrom, so that the kernel can copy files and connections.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	if err := c.begin(); err != nil {
		return 0, err
	}
	return io.Copy(c.Conn, r)
}

// NetConn returns the connection below.
func (c *conn) NetConn() net.Conn { return c.Conn }

// CloseWrite closes the sending side if the connection below supports it.
func (c *conn) CloseWrite() error {
	return netbound.CloseWrite(c.Conn)
}

// RemoteAddr returns the client's address. If the proxy does not know it, it is that of
// an unnamed Unix socket, "@", and not that of the proxy, which is trusted.
func (c *conn) RemoteAddr() net.Addr {
	_ = c.begin() // even a refused connection has an address, for logs
	if c.remote != nil {
		return c.remote
	}
	return c.Conn.RemoteAddr()
}

// Peer returns the address of the peer, and whether the peer is the client, whatever the
// header says. It does not wait for the header.
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

// SetReadDeadline implements net.Conn. While the header is read, it can only shorten the
// time for it.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	if c.reading {
		t = c.sooner()
	}
	return c.Conn.SetReadDeadline(t)
}

// sooner returns the earlier of the two deadlines. It needs c.mu.
func (c *conn) sooner() time.Time {
	if c.deadline.IsZero() || c.limit.Before(c.deadline) {
		return c.limit
	}
	return c.deadline
}

// setReading sets whether the header is being read, and until when.
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

// negotiate reads the header and applies the options.
func (c *conn) negotiate() error {
	limit := time.Now().Add(c.options.Timeout) //nolint:forbidigo // sockets know no other clock
	if err := c.setReading(limit, true); err != nil {
		return err
	}
	trusted := c.options.trusts(c.Conn.RemoteAddr())
	h, err := c.header()
	// A proxy may close the connection right after the header; Read will return that.
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

// header reads until there is a header, or there cannot be one. Bytes after the header
// are kept in c.rest.
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
			// Too short for any header: a client that sends little or nothing.
			c.rest = buf
			return h, fmt.Errorf("%w: %w", ErrNoHeader, reason(err))
		case err != nil:
			return h, fmt.Errorf("%w: %w", ErrIncomplete, reason(err))
		}
		need = length
	}
}

// reason returns the meaning of an error of Read.
func reason(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("not received in time")
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

// believe adopts the addresses in h as those of the connection.
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

// Untrusted is what to do with a header from an untrusted peer. Without a header, such a
// peer is the client.
type Untrusted uint8

// The values of Untrusted.
const (
	Refuse Untrusted = iota // closes the connection; the default
	Ignore                  // skips the header; the peer is the client
)

// String returns the name in the configuration: refuse or ignore.
func (u Untrusted) String() string { return enum.Name(u, "untrusted", "refuse", "ignore") }

// ParseUntrusted is the inverse of [Untrusted.String]. It reports false for other texts.
func ParseUntrusted(s string) (Untrusted, bool) { return enum.Parse(s, Ignore) }

// Options say which peers are trusted.
type Options struct {
	// Trusts reports whether a peer is trusted. A trusted peer must send a header:
	// otherwise its clients could send one themselves. Peers at a Unix socket are
	// trusted, since the permissions of the socket protect it. Required.
	Trusts    func(peer netip.Addr) bool
	Untrusted Untrusted     // for headers of other peers
	Timeout   time.Duration // how long a header may take; 0 means DefaultTimeout
	// Refused is called for every connection closed for its header, concurrently. May be nil.
	Refused func(peer net.Addr, err error)
}

// NewListener returns a listener whose connections have the addresses in their PROXY
// headers. Closing it closes l.
//
// Accept does not wait for the header. It is read on the first call of Read, Write,
// RemoteAddr or LocalAddr, so call these in a goroutine of the connection.
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

// trusts reports whether peer is trusted.
func (o *Options) trusts(peer net.Addr) bool {
	switch peer := peer.(type) {
	case *net.TCPAddr:
		return o.Trusts(peer.AddrPort().Addr().Unmap().WithZone(""))
	case *net.UnixAddr:
		return true
	}
	return false
}
