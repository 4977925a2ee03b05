package proxy

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// Reach says how an upstream is reached.
type Reach struct {
	// Cleartext speaks HTTP/2 without TLS, which the upstream has to know of
	// (h2c with prior knowledge).
	Cleartext bool
	// Socket is the path of its Unix socket; empty for TCP.
	Socket string
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
