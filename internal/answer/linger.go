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
	// shortBody is what net/http reads by itself, to use the connection again.
	shortBody = 256 << 10
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

// measured says how long an answer is behind which the connection lingers, or its
// end would be seen only when that is over.
func measured(h http.Header, text []byte) {
	if closes := h["Connection"]; len(closes) == 1 && closes[0] == "close" {
		h.Set("Content-Length", strconv.Itoa(len(text)))
	}
}
