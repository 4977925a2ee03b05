//go:build !linux

package redistest

import "syscall"

// dieWithParent is not portable: elsewhere only cleanups end a child process.
func dieWithParent() *syscall.SysProcAttr { return nil }
