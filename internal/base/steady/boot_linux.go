package steady

import (
	"syscall"
	"unsafe"
)

// clockBoottime is CLOCK_BOOTTIME of clock_gettime(2).
const clockBoottime = 7

// machineBoot returns the time since the machine started, including sleep.
func machineBoot() (nanoseconds int64, ok bool) {
	var t syscall.Timespec
	//nolint:gosec // the call's own interface
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano(), errno == 0
}
