package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Reach says how to reach an upstream.
type Reach struct {
	Cleartext bool   // HTTP/2 without TLS (h2c with prior knowledge), which the upstream must support
	Socket    string // path of its Unix socket; empty for TCP
}

// Set makes t reach the upstream as r says.
func (r Reach) Set(t *http.Transport) {
	if r.Cleartext {
		t.Protocols = new(http.Protocols)
		t.Protocols.SetUnencryptedHTTP2(true)
	}
	if dial := t.DialContext; r.Socket != "" {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, "unix", r.Socket) }
	}
}

// silentFor is how long a connection of HTTP/2 to the upstream may be silent before it is asked
// for a sign of life, and how long that may take.
const silentFor = 5 * time.Second

// NewTransport returns the transport for requests to the upstream. It keeps many idle
// connections, passes bodies unchanged (no decompression) and uses no proxy from the
// environment.
func NewTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext:           dialer.DialContext,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true,
		MaxIdleConns:          2048,
		MaxIdleConnsPerHost:   1024, // with the default of 2 nearly every request would dial
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   5 * time.Second,
		ExpectContinueTimeout: time.Second,
		// Long enough for slow answers. An event stream sends its header at once and
		// may then be silent for any time.
		ResponseHeaderTimeout: 2 * time.Minute,
		// A connection of HTTP/2 carries all requests, so one that has gone silent is found soon.
		HTTP2:           &http.HTTP2Config{SendPingTimeout: silentFor, PingTimeout: silentFor},
		WriteBufferSize: 16 << 10,
		ReadBufferSize:  16 << 10,
	}
}

// buffers is a pool of memory for copying bodies.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if buf, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return buf[:]
	}
	return make([]byte, bufferSize)
}

// Put implements httputil.BufferPool. The pool holds pointers to arrays, since a slice
// would be copied to the heap each time.
func (b *buffers) Put(buf []byte) {
	if len(buf) == bufferSize {
		b.pool.Put((*[bufferSize]byte)(buf))
	}
}

// tunnel is the upstream's side of an upgraded connection. When either side ends, both
// are closed, as in nginx. httputil alone would close only that direction and wait for
// the other side to end: an upstream that never does would hold the slot of a client
// that has gone, and vice versa.
type tunnel struct {
	upstream io.ReadWriteCloser
}

// errTunnelEnded ends the tunnel after all the upstream's data was passed on.
var errTunnelEnded = errors.New("the upstream ended the tunnel")

// Read implements io.Reader.
func (t tunnel) Read(p []byte) (int, error) {
	n, err := t.upstream.Read(p)
	if errors.Is(err, io.EOF) {
		err = errTunnelEnded // at io.EOF httputil only half-closes the client's side
	}
	return n, err
}

// Write implements io.Writer.
func (t tunnel) Write(p []byte) (int, error) { return t.upstream.Write(p) }

// Close implements io.Closer. Without a CloseWrite, httputil ends the tunnel when the
// client's side has ended.
func (t tunnel) Close() error { return t.upstream.Close() }
