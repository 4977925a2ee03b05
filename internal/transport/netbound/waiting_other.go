//go:build !linux

package netbound

import "net"

// acceptWaiting returns none: here those that wait are reset.
func acceptWaiting(net.Listener) []net.Conn { return nil }
