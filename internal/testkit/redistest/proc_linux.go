package redistest

import "syscall"

// dieWithParent makes a child end when the test binary does, however it ends:
// a panic in another goroutine and go test's timeout run no cleanups.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
