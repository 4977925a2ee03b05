package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"

	"github.com/headgate/headgate/internal/transport/netbound"
)

// errEnded is why net/http does not send a request a second time itself.
var errEnded = errors.New("the upstream closed the connection without an answer")

// connTracking is a transport that notes the connection of each request in its exchange, and
// sends a request at most twice.
//
// An idle connection may end at any time, so net/http sends a request again if a reused one
// ends without an answer: GET, HEAD, OPTIONS and TRACE, and whatever has an Idempotency-Key, if
// there is no body. It does so as long as there are idle connections, which is hundreds of
// times if it is the request that ends them; and they may all have ended. So it is sent a second
// time here, over a new connection.
type connTracking struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper. It adds to the trace of httputil, since a second
// one would cost more than what it is for.
func (t connTracking) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := httptrace.ContextClientTrace(r.Context())
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if !ok || trace == nil || trace.GotConn != nil {
		return t.RoundTripper.RoundTrip(r)
	}
	trace.GotConn = func(info httptrace.GotConnInfo) { x.attempt.begin(info.Conn) }
	if !isReplayable(r) {
		return t.RoundTripper.RoundTrip(r)
	}
	ctx, stop := context.WithCancelCause(r.Context()) // until the request ends
	x.attempt.stop = stop
	res, err := t.RoundTripper.RoundTrip(r.WithContext(ctx))
	if err == nil || !errors.Is(err, errEnded) {
		return res, err
	}
	x.attempt = attempt{}
	return t.RoundTripper.RoundTrip(r.WithContext(context.WithValue(r.Context(), freshKey{}, true)))
}

// isReplayable reports whether net/http may send r again.
func isReplayable(r *http.Request) bool {
	if r.Body != nil && r.Body != http.NoBody {
		return false
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return r.Header["Idempotency-Key"] != nil || r.Header["X-Idempotency-Key"] != nil
}

// freshKey marks the context of a request that needs a new connection; see ways.
type freshKey struct{}

// withAttempts returns a context with which connTracking sends a request twice at most. It must
// be canceled.
func withAttempts(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(context.WithValue(ctx, exchangeKey{}, new(exchange)), new(httptrace.ClientTrace))
}

// attempt is one of sending a request to the upstream.
type attempt struct {
	conn    *upstreamConn           // nil if not known
	written int64                   // by conn, when the attempt began
	stop    context.CancelCauseFunc // nil if there is nothing to stop
}

// begin begins an attempt over a connection. If the request has been sent over another before,
// this one does not take it.
func (a *attempt) begin(over net.Conn) {
	sent := a.conn != nil && a.conn.written.Load() > a.written
	var ok bool
	if a.conn, ok = netbound.Layer[*upstreamConn](over); !ok {
		return
	}
	a.written = a.conn.written.Load()
	if sent && a.stop != nil && !a.conn.shared && !speaksHTTP2(over) {
		a.conn.refuses.Store(true)
		a.stop(errEnded)
	}
}

// speaksHTTP2 reports whether a connection with TLS is of HTTP/2. There net/http sends again
// only what the upstream says was not processed, and other requests use the connection.
func speaksHTTP2(nc net.Conn) bool {
	with, ok := nc.(interface{ ConnectionState() tls.ConnectionState })
	return ok && with.ConnectionState().NegotiatedProtocol == "h2"
}
