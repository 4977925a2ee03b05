package proxyproto

import (
	"net"
	"net/netip"
	"time"

	"github.com/headgate/headgate/internal/base/enum"
)

// DefaultTimeout is how long a header may take to arrive.
const DefaultTimeout = 5 * time.Second

// Untrusted says what becomes of a header from a peer that is not trusted.
// Without a header such a peer is served, and is the client itself.
type Untrusted uint8

const (
	// Refuse closes the connection. It is the default.
	Refuse Untrusted = iota
	// Ignore skips the header: the peer is the client.
	Ignore
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
	Trusts func(peer netip.Addr) bool
	// Untrusted is for headers of all others.
	Untrusted Untrusted
	// Timeout is how long a header may take; 0 means DefaultTimeout.
	Timeout time.Duration
	// Refused, if not nil, is told of every connection that was closed for
	// its header or the lack of it. Any number of goroutines may call it.
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

// Accept implements net.Listener.
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
