//go:build unix

package proxy

import "syscall"

// ready reads what has arrived, without waiting. It returns 0 if there is nothing, or if
// that is not known.
func ready(raw syscall.RawConn, p []byte) (n int) {
	if raw == nil {
		return 0
	}
	_ = raw.Read(func(fd uintptr) bool {
		n, _ = syscall.Read(int(fd), p)
		return true
	})
	return max(n, 0)
}
