package answer

import (
	"io"
	"net/http"
	"strconv"
	"time"
)

// The limits on reading a body only to discard it.
const (
	lingerBytes = 64 << 20
	lingerTime  = 5 * time.Second
	shortBody   = 256 << 10 // what net/http reads itself, to reuse the connection
)

// Linger prepares the answer to an HTTP/1 request when the rest of its body is not
// needed. A client may send all of the body before it reads; closing the connection
// would reset it and lose the answer. Call rest after writing the answer: it flushes
// the answer, then reads and discards body up to a limit. After that the connection
// closes.
func Linger(w http.ResponseWriter, r *http.Request, body io.Reader) (rest func()) {
	to := http.NewResponseController(w)
	if r.ProtoMajor != 1 || to.EnableFullDuplex() != nil {
		return func() {}
	}
	w.Header().Set("Connection", "close")
	return func() {
		if to.Flush() != nil || to.SetReadDeadline(time.Now().Add(lingerTime)) != nil { //nolint:forbidigo // sockets use the real clock
			return
		}
		_, _ = io.CopyN(io.Discard, body, lingerBytes)
	}
}

// Unwanted is [Linger] for a request whose body is not needed, if it is long enough
// to matter. A client that waits for 100 (Continue) sends nothing.
func Unwanted(w http.ResponseWriter, r *http.Request, body io.Reader) (rest func()) {
	switch {
	case r.ProtoMajor != 1 || r.ContentLength >= 0 && r.ContentLength <= shortBody || r.Header["Expect"] != nil:
		return func() {}
	case r.ContentLength < 0: // chunked: after a short body the connection stays open
		if n, _ := io.CopyN(io.Discard, body, shortBody); n < shortBody {
			return func() {} // it ended, or was cut off
		}
	}
	return Linger(w, r, body)
}

// Lingering serves h and applies [Unwanted] when h answers with 400 or above without
// reading all of a long body.
func Lingering(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.ContentLength >= 0 && r.ContentLength <= shortBody {
			h.ServeHTTP(w, r)
			return
		}
		l := &lingering{ResponseWriter: w, request: r, body: r.Body, rest: func() {}}
		l.closes = len(w.Header()["Connection"]) > 0
		h.ServeHTTP(l, r)
		l.rest()
	})
}

// lingering is a ResponseWriter that lingers if needed.
type lingering struct {
	http.ResponseWriter
	request *http.Request
	body    io.Reader // the original one
	closes  bool      // the connection, whatever the handler does
	rest    func()
}

func (l *lingering) WriteHeader(status int) {
	if status >= http.StatusBadRequest && (l.closes || len(l.Header()["Connection"]) == 0) { // else h closes it itself
		l.rest = Unwanted(l.ResponseWriter, l.request, l.body)
	}
	l.ResponseWriter.WriteHeader(status)
}

// Unwrap supports http.ResponseController.
func (l *lingering) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// measured sets the length of an answer after which the connection may linger.
// Otherwise the client would see its end only when the connection closes.
func measured(h http.Header, text []byte) {
	if closes := h["Connection"]; len(closes) == 1 && closes[0] == "close" {
		h.Set("Content-Length", strconv.Itoa(len(text)))
	}
}
