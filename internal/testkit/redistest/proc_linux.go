package redistest

import "syscall"

// dieWithParent ends a child process when the test binary ends for any reason. After a
// panic in another goroutine or go test's timeout, cleanups do not run.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
