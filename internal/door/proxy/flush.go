package proxy

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// prompt is the body of an answer. What has arrived of it is sent on before the proxy waits
// for more, since the client may wait for it: an event, or the header. The rest is sent on
// together.
type prompt struct {
	io.ReadCloser
	conn *upstreamConn // of HTTP/1, where the answer has it to itself; otherwise nil
	to   *quiet
	err  error // why it is broken off

	mu      sync.Mutex
	reading bool // net/http reads the next answer with another goroutine, before Read returns
}

// promptly returns the body to copy to w in place of that of res.
func promptly(w *quiet, res *http.Response, conn *upstreamConn) io.ReadCloser {
	// An empty body of HTTP/2 is another value.
	if res.Body == http.NoBody || res.ProtoMajor > 1 && (res.ContentLength == 0 || res.Request.Method == http.MethodHead) {
		w.over.Store(true) // a flush would part the header, which may have the status of gRPC, from the end
		return res.Body
	}
	res.ContentLength = 0 // otherwise httputil flushes after every write if it is unknown
	if res.ProtoMajor != 1 {
		conn = nil
	}
	return &prompt{ReadCloser: res.Body, conn: conn, to: w}
}

// quiet is the client's http.ResponseWriter for httputil. It ignores that httputil flushes
// event streams after a while and after every write, until there is nothing more to copy.
type quiet struct {
	http.ResponseWriter
	old  bool // HTTP/1.0
	over atomic.Bool
}

// WriteHeader implements http.ResponseWriter. Clients of HTTP/1.0, and proxies that use it,
// would take an early hint for the answer (RFC 9110, 15.2).
func (q *quiet) WriteHeader(status int) {
	if q.old && status < http.StatusOK && status != http.StatusSwitchingProtocols {
		return
	}
	q.ResponseWriter.WriteHeader(status)
}

// quieted returns w for httputil, and for the client that sent r.
func quieted(w http.ResponseWriter, r *http.Request) *quiet {
	return &quiet{ResponseWriter: w, old: !r.ProtoAtLeast(1, 1)}
}

// FlushError is for http.ResponseController.
func (q *quiet) FlushError() error {
	if !q.over.Load() {
		return nil
	}
	return http.NewResponseController(q.ResponseWriter).Flush()
}

// Unwrap supports http.ResponseController.
func (q *quiet) Unwrap() http.ResponseWriter { return q.ResponseWriter }

// Read implements io.Reader. If the answer breaks off, the client gets what there is of it:
// otherwise net/http would drop the last bytes.
func (b *prompt) Read(p []byte) (n int, err error) {
	switch {
	case b.err != nil:
		err = b.err
	case b.conn == nil:
		b.flush()
		n, err = b.ReadCloser.Read(p)
	default:
		b.reads(true)
		b.conn.waits.Store(b)
		n, err = b.ReadCloser.Read(p)
		b.conn.waits.CompareAndSwap(b, nil) // another request may have the connection by now
		b.reads(false)
	}
	switch {
	case errors.Is(err, io.EOF):
		b.to.over.Store(true)
		return n, err
	case err == nil:
		return n, nil
	case n > 0:
		b.err = err
		return n, nil
	}
	b.flush()
	return 0, err
}

func (b *prompt) reads(yes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = yes
}

// pauses notes that the connection has nothing more to read now.
func (b *prompt) pauses() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reading {
		b.flush()
	}
}

func (b *prompt) flush() { _ = http.NewResponseController(b.to.ResponseWriter).Flush() }
