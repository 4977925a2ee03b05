package app

import (
	"errors"
	"fmt"
	"syscall"
)

// Hint says what to do about it.
func (e *ListenError) Hint() string {
	var errno syscall.Errno
	if !errors.As(e.Err, &errno) {
		return "write host:port, such as 127.0.0.1:8080"
	}
	switch errno {
	case syscall.EADDRINUSE:
		if e.Other != "" {
			return fmt.Sprintf("%s and %s are one address: give each its own, or let API, gRPC and the Redis protocol share listen.shared", e.Other, e.Setting)
		}
		return "another process listens there: stop it, or choose another address"
	case syscall.EACCES, syscall.EPERM:
		return "ports below 1024 need a privilege (CAP_NET_BIND_SERVICE); choose a higher one"
	case syscall.EADDRNOTAVAIL:
		return "this machine does not have that address"
	}
	return ""
}
