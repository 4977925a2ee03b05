package answer

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// Watched is an http.ResponseWriter that watches the status of an answer. It keeps the
// features of the wrapped writer: through Unwrap for an http.ResponseController, and as
// an http.Flusher, http.Hijacker, http.Pusher, io.ReaderFrom and io.StringWriter.
type Watched struct {
	http.ResponseWriter
	// OnHijack, if it is not nil, is called when the handler has taken over the connection.
	OnHijack func()

	answered func(status int)
	status   int
	hijacked bool
}

// Watch returns a writer to w. It calls answered, if it is not nil, once with the status
// of the answer: when the handler has decided about the header, if possible before it is
// sent, so that answered may still change header fields. It does not call it for a
// hijacked connection, or if the handler never answers; see [Watched.End].
func Watch(w http.ResponseWriter, answered func(status int)) *Watched {
	return &Watched{ResponseWriter: w, answered: answered}
}

// End says that the handler has returned. A handler that wrote nothing has answered 200.
// End returns the status that the client got, or 0 if it is unknown, as on a hijacked
// connection.
func (w *Watched) End() int {
	if w.hijacked {
		return 0
	}
	w.setStatus(http.StatusOK) // what net/http sends for a handler that wrote nothing
	return w.status
}

func (w *Watched) setStatus(status int) {
	// 1xx answers come before the final one, except 101.
	if w.status != 0 || w.hijacked || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	if w.status = status; w.answered != nil {
		w.answered(status)
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *Watched) WriteHeader(status int) {
	w.setStatus(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *Watched) Write(b []byte) (int, error) {
	w.setStatus(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// ReadFrom implements io.ReaderFrom, so that files are still sent by sendfile.
func (w *Watched) ReadFrom(r io.Reader) (int64, error) {
	w.setStatus(http.StatusOK)
	return io.Copy(w.ResponseWriter, r)
}

// Flush implements http.Flusher.
func (w *Watched) Flush() { _ = w.FlushError() }

// FlushError is what http.ResponseController calls.
func (w *Watched) FlushError() error {
	if flushes(w.ResponseWriter) { // otherwise nothing is sent
		w.setStatus(http.StatusOK)
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// flushes reports whether w, or a writer that it wraps, can flush.
func flushes(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case *Watched:
			w = t.ResponseWriter
		case interface{ FlushError() error }, http.Flusher:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}

// Hijack implements http.Hijacker.
func (w *Watched) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if w.hijacked = err == nil; w.hijacked && w.OnHijack != nil {
		w.OnHijack()
	}
	return conn, rw, err
}

// Push implements http.Pusher.
func (w *Watched) Push(target string, options *http.PushOptions) error {
	if p, ok := w.ResponseWriter.(http.Pusher); ok {
		return p.Push(target, options)
	}
	return http.ErrNotSupported
}

// WriteString implements io.StringWriter.
func (w *Watched) WriteString(s string) (int, error) {
	w.setStatus(http.StatusOK)
	return io.WriteString(w.ResponseWriter, s)
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (w *Watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }
