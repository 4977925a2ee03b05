package proxy

import "net/http"

// NewTransportTo returns a transport like that of the door, with a limit on connections.
func NewTransportTo(most int) *http.Transport {
	u := &upstream{transport: NewTransport()}
	u.transport.DialContext = u.bounded(most, u.transport.DialContext)
	return u.transport
}
