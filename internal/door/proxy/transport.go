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

// Reach says how an upstream is reached.
type Reach struct {
	Cleartext bool   // speaks HTTP/2 without TLS, which the upstream has to know of (h2c with prior knowledge)
	Socket    string // the path of its Unix socket; empty for TCP
}

// Set makes t reach the upstream so.
func (r Reach) Set(t *http.Transport) {
	if r.Cleartext {
		t.Protocols = new(http.Protocols)
		t.Protocols.SetUnencryptedHTTP2(true)
	}
	if dial := t.DialContext; r.Socket != "" {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, "unix", r.Socket) }
	}
}

// NewTransport returns the transport that requests go to the upstream by. It
// keeps as many connections as the upstream ever needed at once, passes
// bodies through as they are (no decompression) and takes no proxy from the
// environment.
func NewTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext:           dialer.DialContext,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true,
		MaxIdleConns:          2048,
		MaxIdleConnsPerHost:   1024, // the default of 2 would dial for nearly every request
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   5 * time.Second,
		ExpectContinueTimeout: time.Second,
		// Long enough for slow answers, and for events: a stream sends its
		// header at once and may then be silent as long as it likes.
		ResponseHeaderTimeout: 2 * time.Minute,
		WriteBufferSize:       16 << 10,
		ReadBufferSize:        16 << 10,
	}
}

// buffers are the memory that bodies are copied through.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if buf, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return buf[:]
	}
	return make([]byte, bufferSize)
}

// Put implements httputil.BufferPool. An array's pointer goes into the pool, since
// a slice would be copied to the heap each time.
func (b *buffers) Put(buf []byte) {
	if len(buf) == bufferSize {
		b.pool.Put((*[bufferSize]byte)(buf))
	}
}

// tunnel is the upstream's side of an upgraded connection. When either side has
// ended, both are closed, as in nginx. httputil passes the end of one side on as
// the end of that direction only, and waits for the other side to end by itself:
// an upstream that never does would hold the client's place after it has gone,
// and the other way round.
type tunnel struct {
	upstream io.ReadWriteCloser
}

// errTunnelEnded ends the tunnel after everything the upstream sent was passed on.
var errTunnelEnded = errors.New("the upstream ended the tunnel")

// Read implements io.Reader.
func (t tunnel) Read(p []byte) (int, error) {
	n, err := t.upstream.Read(p)
	if errors.Is(err, io.EOF) {
		err = errTunnelEnded // httputil half-closes the client's side at io.EOF
	}
	return n, err
}

// Write implements io.Writer.
func (t tunnel) Write(p []byte) (int, error) { return t.upstream.Write(p) }

// Close implements io.Closer. There is no CloseWrite: without it, httputil ends
// the tunnel when the client's side has ended.
func (t tunnel) Close() error { return t.upstream.Close() }
