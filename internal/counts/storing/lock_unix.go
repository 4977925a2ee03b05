//go:build unix && !aix && !solaris

package storing

import (
	"errors"
	"os"
	"syscall"
)

// lockFile creates a file and locks it, or returns false if another process holds the
// lock. The lock ends with the process, however that ends.
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

// unlockFile ends the lock of f and closes it. Closing alone would not end it while a program
// is being started: until that runs, the fork has the file too.
func unlockFile(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}
