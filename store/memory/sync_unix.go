//go:build !windows

package memory

import "os"

// syncFolder makes a rename in the folder last.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written to it
	return f.Sync()
}
