// Package oneport serves several protocols on one port: it tells gRPC, HTTP and
// the Redis protocol apart by the first bytes of a connection, and hands it to
// the door that speaks it.
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

// Options are what is the same for all protocols.
type Options struct {
	TLS *tls.Config // TLS, if not nil, encrypts the port. The protocol is told by what is inside; see [Protocols].
	// Timeout is how long a connection may take until it is known what it
	// speaks, its TLS handshake included; 0 means DefaultTimeout. A connection
	// that takes longer is closed.
	Timeout time.Duration
}

// Protocols are what to agree on by ALPN. Who offers both, as browsers do, gets
// HTTP/1.1; who offers HTTP/2 alone speaks gRPC; and who offers nothing may
// speak anything.
func Protocols() []string { return []string{"http/1.1", "h2"} }

// Port is a port that several protocols share. Get the listeners that are
// wanted, serve them, and call Serve.
type Port struct {
	options  Options
	root     net.Listener
	children [protocols]*child

	base context.Context // done when the port closes
	end  context.CancelFunc
	busy sync.WaitGroup // connections of which nobody knows yet what they speak
}

// New returns a port that takes its connections from l.
func New(l net.Listener, o Options) *Port {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	p := &Port{options: o, root: l}
	p.base, p.end = context.WithCancel(context.Background())
	return p
}

// Listener returns the listener for what speaks a protocol. It must be asked
// for before Serve. What speaks a protocol without a listener goes to that for
// HTTP, and is closed if there is none.
func (p *Port) Listener(of Protocol) net.Listener {
	if p.children[of] == nil {
		p.children[of] = &child{addr: p.root.Addr(), conns: make(chan net.Conn), gone: make(chan struct{})}
	}
	return p.children[of]
}

// Serve tells connections apart until Close, and then returns nil.
func (p *Port) Serve() error {
	defer p.busy.Wait()
	defer p.end()
	return netbound.AcceptAll(p.base, p.root, func(nc net.Conn) {
		p.busy.Go(func() { p.tell(nc) })
	})
}

// lastWords is how long connections may still take to say what they speak when
// the port is about to close.
const lastWords = 50 * time.Millisecond

// Drain waits a little for connections that have been accepted to say what they
// speak, so that Close cuts none off that has sent a request. No more may be
// accepted meanwhile.
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

// Close accepts no more connections, and closes those that have not said what
// they speak. Those that were handed on are the business of their doors.
func (p *Port) Close() error {
	p.end()
	return p.root.Close()
}

// tell finds out what a connection speaks and hands it on.
func (p *Port) tell(raw net.Conn) {
	ctx, cancel := context.WithTimeout(p.base, p.options.Timeout)
	defer cancel()
	// Closing it ends whatever is being waited for.
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

// peek returns the connection with all its bytes, and what it speaks.
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

// take waits until the door accepts nc, and reports false if it is closed.
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

// Close implements net.Listener. The port goes on.
func (c *child) Close() error {
	c.once.Do(func() { close(c.gone) })
	return nil
}

// Addr implements net.Listener: it is that of the port.
func (c *child) Addr() net.Addr { return c.addr }

// Protocol is what a connection speaks.
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

// enough is how many bytes suffice to tell protocols apart: the longest method
// of HTTP, and the space behind it.
const enough = len("OPTIONS ")

// Tell says what a connection speaks that begins with head, or false if more of
// it has to be seen. That is never so for 8 bytes or more.
//
// A method of HTTP and a space is HTTP; the method PRI, which only the preface
// of HTTP/2 has, is gRPC; and so is the record of a TLS handshake HTTP, whose
// servers know what to say to it. All else is the Redis protocol: an array, or
// a command in a line.
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

// peeked is a connection of which the first bytes have been read.
type peeked struct {
	net.Conn
	head []byte
}

// Read returns the bytes that have been read, and then the others.
func (p *peeked) Read(b []byte) (int, error) {
	if len(p.head) == 0 {
		return p.Conn.Read(b)
	}
	n := copy(b, p.head)
	if p.head = p.head[n:]; len(p.head) == 0 {
		p.head = nil // let go of it
	}
	return n, nil
}

// NetConn returns the connection below.
func (p *peeked) NetConn() net.Conn { return p.Conn }

// CloseWrite closes the sending side, if the connection below is able to.
func (p *peeked) CloseWrite() error { return netbound.CloseWrite(p.Conn) }
