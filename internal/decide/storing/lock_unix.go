//go:build unix && !aix && !solaris

package storing

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes the lock on a file, which it makes, and reports false if
// another process has it. The lock ends with the process, however that ends.
func lockFile(name string) (f *os.File, ok bool, err error) {
	if f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, false, err
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		return f, true, nil
	}
	_ = f.Close() // nothing was written to it
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, false, nil
	}
	return nil, false, err
}
