//go:build unix

package overload

import (
	"math"
	"syscall"
)

// RaiseLimit raises the soft limit of file descriptors to the hard limit and returns the
// new one. It reports false if the limit cannot be read. The runtime already tries this;
// doing it again is harmless.
func RaiseLimit() (limit int, known bool) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0, false
	}
	if r.Cur < r.Max {
		raised := r
		raised.Cur = raised.Max
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised); err == nil {
			r = raised
		}
	}
	return int(min(uint64(r.Cur), math.MaxInt32)), true //nolint:unconvert // Cur is signed on some systems, and never negative
}
