package proxy

import (
	"crypto/tls"
	"net/http"
)

// NewWays returns transports like those of the door to an upstream with the certificate of a
// test server, or without TLS.
func NewWays(tls *tls.Config) (to http.RoundTripper, end func()) {
	u := &upstream{transport: NewTransport()}
	u.transport.DialContext = u.bounded(1000, u.transport.DialContext)
	u.complete(tls != nil)
	for _, t := range []*http.Transport{u.ways.usual, u.ways.fresh, u.ways.first} {
		if t != nil && tls != nil {
			t.TLSClientConfig, t.ForceAttemptHTTP2 = tls, false // HTTP/1.1 only
		}
	}
	return u.ways, u.ways.close
}

// NewTransportTo returns a transport like that of the door, with a limit on connections.
func NewTransportTo(most int) *http.Transport {
	u := &upstream{transport: NewTransport()}
	u.transport.DialContext = u.bounded(most, u.transport.DialContext)
	return u.transport
}
