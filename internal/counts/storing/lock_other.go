//go:build !unix || aix || solaris

package storing

import (
	"errors"
	"os"
)

// lockFile is not supported on this system.
func lockFile(string) (*os.File, bool, error) {
	return nil, false, errors.New("file locks are not supported on this system")
}

func unlockFile(f *os.File) error { return f.Close() }
