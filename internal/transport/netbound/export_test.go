package netbound

import (
	"net"
	"net/http"
)

// Hides reports whether a byte of a header that arrives on nc is counted as what TLS hides.
func Hides(nc net.Conn) bool {
	var h head
	h.follow(nc, http.StateNew)
	return h.hidden.Load()
}

// Begin is what a net/http server does with a new connection.
func Begin(nc net.Conn) { find(nc).head.follow(nc, http.StateNew) }

// Free is how much of what arrives is not counted.
func Free(nc net.Conn) int64 { return find(nc).head.free.Load() }
