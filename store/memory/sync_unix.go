//go:build !windows

package memory

import "os"

// syncFolder makes a rename in the folder last.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
