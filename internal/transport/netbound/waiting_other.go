//go:build !linux

package netbound

import "net"

// acceptWaiting returns none: on this system waiting connections are reset.
func acceptWaiting(net.Listener) []net.Conn { return nil }

// setWaiting does nothing: on this system the line stays as long as it is.
func setWaiting(net.Listener, int) {}
