//go:build !unix

package proxy

import "syscall"

// ready is not known here.
func ready(syscall.RawConn, []byte) int { return 0 }
