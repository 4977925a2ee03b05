// Package oneport serves several protocols on one port. It recognizes gRPC, HTTP and the
// Redis protocol by the first bytes of a connection, and passes the connection to the
// door for that protocol.
package oneport

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/base/enum"
	"github.com/headgate/headgate/internal/transport/netbound"
)

// DefaultTimeout is the default of Options.Timeout.
const DefaultTimeout = 10 * time.Second

// Options configure a [Port].
type Options struct {
	TLS *tls.Config // encrypts the port; may be nil. The protocol is recognized inside; see [Protocols].
	// Timeout is how long a connection may take until its protocol is known, including
	// the TLS handshake; 0 means DefaultTimeout. Slower connections are closed.
	Timeout time.Duration
}

// Protocols returns the protocols for ALPN. Clients that offer both, such as browsers,
// get HTTP/1.1. Those that only offer HTTP/2 speak gRPC. Those that offer none may speak
// any protocol.
func Protocols() []string { return []string{"http/1.1", "h2"} }

// Port is a port that several protocols share. Call Listener for each protocol, serve the
// listeners, then call Serve.
type Port struct {
	options  Options
	root     net.Listener
	children [protocols]*child

	base context.Context // done when the port closes
	end  context.CancelFunc
	busy sync.WaitGroup // connections whose protocol is not known yet
}

// New returns a port for the connections of l.
func New(l net.Listener, o Options) *Port {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	p := &Port{options: o, root: l}
	p.base, p.end = context.WithCancel(context.Background())
	return p
}

// Listener returns the listener for a protocol. Call it before Serve. Connections of a
// protocol without a listener go to that for HTTP, or are closed if there is none.
func (p *Port) Listener(of Protocol) net.Listener {
	if p.children[of] == nil {
		p.children[of] = &child{addr: p.root.Addr(), conns: make(chan net.Conn), gone: make(chan struct{})}
	}
	return p.children[of]
}

// Serve passes connections to their listeners until Close, and then returns nil.
func (p *Port) Serve() error {
	defer p.busy.Wait()
	defer p.end()
	return netbound.AcceptAll(p.base, p.root, func(nc net.Conn) {
		p.busy.Go(func() { p.tell(nc) })
	})
}

// lastWords is how long Drain waits for the first bytes of connections.
const lastWords = 50 * time.Millisecond

// Drain waits a little for the first bytes of accepted connections, so that Close does
// not cut off one that has sent a request. No connections may be accepted while it runs.
func (p *Port) Drain(ctx context.Context) {
	told := make(chan struct{})
	go func() {
		p.busy.Wait()
		close(told)
	}()
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	select {
	case <-told:
	case <-ctx.Done():
	}
}

// Close stops accepting connections, and closes those whose protocol is not known yet.
// The doors close the others.
func (p *Port) Close() error {
	p.end()
	return p.root.Close()
}

// tell recognizes the protocol of a connection and passes it on.
func (p *Port) tell(raw net.Conn) {
	ctx, cancel := context.WithTimeout(p.base, p.options.Timeout)
	defer cancel()
	// Closing the connection ends any wait.
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	nc, of, err := p.peek(ctx, raw)
	if !stop() || err != nil {
		_ = raw.Close()
		return
	}
	to := p.children[of]
	if to == nil {
		to = p.children[HTTP]
	}
	if to == nil || !to.take(p.base, nc) {
		_ = nc.Close()
	}
}

// peek returns the connection with all its bytes, and its protocol.
func (p *Port) peek(ctx context.Context, raw net.Conn) (net.Conn, Protocol, error) {
	nc := raw
	if p.options.TLS != nil {
		encrypted := tls.Server(raw, p.options.TLS)
		if err := encrypted.HandshakeContext(ctx); err != nil {
			return nil, HTTP, err
		}
		nc = encrypted
	}
	head := make([]byte, 0, enough)
	for {
		n, err := nc.Read(head[len(head):cap(head)])
		head = head[:len(head)+n]
		if of, known := Tell(head); known {
			return &peeked{Conn: nc, head: head}, of, nil
		}
		if err != nil {
			return nil, HTTP, err
		}
	}
}

// child is the listener of one protocol.
type child struct {
	addr  net.Addr
	conns chan net.Conn
	gone  chan struct{}
	once  sync.Once
}

// take waits until the door accepts nc. It reports false if the door is closed.
func (c *child) take(ctx context.Context, nc net.Conn) bool {
	select {
	case c.conns <- nc:
		return true
	case <-c.gone:
	case <-ctx.Done():
	}
	return false
}

// Accept implements net.Listener.
func (c *child) Accept() (net.Conn, error) {
	select {
	case nc := <-c.conns:
		return nc, nil
	case <-c.gone:
		return nil, &net.OpError{Op: "accept", Net: c.addr.Network(), Addr: c.addr, Err: net.ErrClosed}
	}
}

// Close implements net.Listener. The port stays open.
func (c *child) Close() error {
	c.once.Do(func() { close(c.gone) })
	return nil
}

// Addr implements net.Listener. It is the address of the port.
func (c *child) Addr() net.Addr { return c.addr }

// Protocol is the protocol of a connection.
type Protocol uint8

// The protocols.
const (
	HTTP Protocol = iota // HTTP/1
	GRPC                 // HTTP/2
	RESP                 // the Redis protocol
)

// protocols is how many there are.
const protocols = int(RESP) + 1

// String returns the name of the protocol: http, grpc or resp.
func (p Protocol) String() string { return enum.Name(p, "protocol", "http", "grpc", "resp") }

// enough is how many bytes are needed to recognize a protocol: the longest HTTP method,
// and a space.
const enough = len("OPTIONS ")

// Tell returns the protocol of a connection that starts with head, or false if more bytes
// are needed. 8 bytes are always enough.
//
// An HTTP method and a space is HTTP. PRI, the start of HTTP/2, is gRPC. A TLS handshake
// is HTTP, whose servers have an answer for it. Everything else is the Redis protocol: an
// array or an inline command.
func Tell(head []byte) (of Protocol, known bool) {
	if len(head) == 0 {
		return HTTP, false
	}
	if head[0] == 0x16 {
		return HTTP, true
	}
	for _, method := range [...]string{"PRI ", "GET ", "POST ", "HEAD ", "PUT ", "PATCH ", "DELETE ", "OPTIONS ", "CONNECT ", "TRACE "} {
		switch start := []byte(method); {
		case bytes.HasPrefix(head, start) && method == "PRI ":
			return GRPC, true
		case bytes.HasPrefix(head, start):
			return HTTP, true
		case bytes.HasPrefix(start, head):
			return HTTP, false
		}
	}
	return RESP, true
}

// peeked is a connection whose first bytes have been read.
type peeked struct {
	net.Conn
	head []byte
}

// Read returns the bytes read before, then those of the connection.
func (p *peeked) Read(b []byte) (int, error) {
	if len(p.head) == 0 {
		return p.Conn.Read(b)
	}
	n := copy(b, p.head)
	if p.head = p.head[n:]; len(p.head) == 0 {
		p.head = nil // release it
	}
	return n, nil
}

// NetConn returns the connection below.
func (p *peeked) NetConn() net.Conn { return p.Conn }

// CloseWrite closes the sending side if the connection below supports it.
func (p *peeked) CloseWrite() error { return netbound.CloseWrite(p.Conn) }
