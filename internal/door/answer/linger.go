package answer

import (
	"io"
	"net/http"
	"strconv"
	"time"
)

// The bounds on what is read of a body only to throw it away.
const (
	lingerBytes = 64 << 20
	lingerTime  = 5 * time.Second
	shortBody   = 256 << 10 // what net/http reads by itself, to use the connection again
)

// Linger prepares the answer to a request over HTTP/1 of whose body the rest is
// not wanted, though its client may send it all before it reads: to close the
// connection then would reset it, and the answer would be lost. So rest, which is
// to be called when the answer is written, sends it and then reads body and
// throws it away, within bounds. The connection closes after that.
func Linger(w http.ResponseWriter, r *http.Request, body io.Reader) (rest func()) {
	to := http.NewResponseController(w)
	if r.ProtoMajor != 1 || to.EnableFullDuplex() != nil {
		return func() {}
	}
	w.Header().Set("Connection", "close")
	return func() {
		if to.Flush() != nil || to.SetReadDeadline(time.Now().Add(lingerTime)) != nil { //nolint:forbidigo // sockets go by the real clock
			return
		}
		_, _ = io.CopyN(io.Discard, body, lingerBytes)
	}
}

// Unwanted is [Linger] for a request whose body nobody has asked for, if it is
// long enough to matter. A client that waits for 100 (Continue) sends nothing.
func Unwanted(w http.ResponseWriter, r *http.Request, body io.Reader) (rest func()) {
	switch {
	case r.ProtoMajor != 1 || r.ContentLength >= 0 && r.ContentLength <= shortBody || r.Header["Expect"] != nil:
		return func() {}
	case r.ContentLength < 0: // in chunks: short ones leave the connection open
		if n, _ := io.CopyN(io.Discard, body, shortBody); n < shortBody {
			return func() {} // it has ended, or broken off
		}
	}
	return Linger(w, r, body)
}

// Lingering serves by h, and is [Unwanted] for every request that h refuses, with
// 400 or above, without reading all of its long body.
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

// lingering is a writer that lingers if need be.
type lingering struct {
	http.ResponseWriter
	request *http.Request
	body    io.Reader // as it was at first
	closes  bool      // the connection, whatever the handler does
	rest    func()
}

func (l *lingering) WriteHeader(status int) {
	if status >= http.StatusBadRequest && (l.closes || len(l.Header()["Connection"]) == 0) { // else h sees to it
		l.rest = Unwanted(l.ResponseWriter, l.request, l.body)
	}
	l.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (l *lingering) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// measured says how long an answer is behind which the connection lingers, or its
// end would be seen only when that is over.
func measured(h http.Header, text []byte) {
	if closes := h["Connection"]; len(closes) == 1 && closes[0] == "close" {
		h.Set("Content-Length", strconv.Itoa(len(text)))
	}
}
