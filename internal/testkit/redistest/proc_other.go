//go:build !linux

package redistest

import "syscall"

// dieWithParent has no portable form: elsewhere only cleanups end a child.
func dieWithParent() *syscall.SysProcAttr { return nil }
