package proxy

import (
	"net/http"
	"strings"
)

// ways are the transports to an upstream.
type ways struct {
	usual *http.Transport
	// first is for requests to upgrade, which go over HTTP/1.1: HTTP/2 has none, and net/http
	// knows only those to WebSocket, where it does the TLS handshake itself. It keeps no
	// connections, and is nil where usual speaks HTTP/1.1.
	first *http.Transport
	h2c   bool            // usual speaks HTTP/2 only
	fresh *http.Transport // keeps no connections
}

// RoundTrip implements http.RoundTripper.
func (w *ways) RoundTrip(r *http.Request) (*http.Response, error) {
	switch to := r.Header.Get("Upgrade"); {
	case w.h2c && to != "" && !strings.EqualFold(to, "websocket"): // ignored, as a server may
		r = r.Clone(r.Context())
		r.Header.Del("Upgrade")
		r.Header.Del("Connection")
		return w.RoundTrip(r)
	case w.first != nil && to != "":
		return w.first.RoundTrip(r)
	case r.Context().Value(freshKey{}) != nil:
		return w.fresh.RoundTrip(r)
	}
	return w.usual.RoundTrip(r)
}

// close closes idle connections.
func (w *ways) close() { w.usual.CloseIdleConnections() }
