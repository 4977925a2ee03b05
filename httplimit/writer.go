package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// statusWriter records the status of an answer. It keeps the features of the wrapped
// writer: through Unwrap for an http.ResponseController, and as an http.Flusher,
// http.Hijacker and io.ReaderFrom.
type statusWriter struct {
	http.ResponseWriter
	status   int
	hijacked bool
}

// final returns the status that the client got, or 0 if it is unknown.
func (w *statusWriter) final() int {
	switch {
	case w.hijacked:
		return 0
	case w.status == 0:
		return http.StatusOK // what net/http sends for a handler that wrote nothing
	}
	return w.status
}

func (w *statusWriter) note(status int) {
	// 1xx answers come before the final one, except 101.
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.note(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(b []byte) (int, error) {
	w.note(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// ReadFrom implements io.ReaderFrom, so that files are still sent by sendfile.
func (w *statusWriter) ReadFrom(r io.Reader) (int64, error) {
	w.note(http.StatusOK)
	return io.Copy(w.ResponseWriter, r)
}

// Flush implements http.Flusher.
func (w *statusWriter) Flush() { _ = w.FlushError() }

// FlushError is what http.ResponseController calls.
func (w *statusWriter) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if err == nil {
		w.note(http.StatusOK)
	}
	return err
}

// Hijack implements http.Hijacker.
func (w *statusWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.hijacked = err == nil
	return conn, rw, err
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
