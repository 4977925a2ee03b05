//go:build !linux

package netbound

import "net"

// acceptWaiting returns none: on this system waiting connections are reset.
func acceptWaiting(net.Listener) []net.Conn { return nil }
