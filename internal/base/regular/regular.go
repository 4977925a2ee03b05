// Package regular opens regular files.
package regular

import (
	"cmp"
	"errors"
	"os"
	"syscall"
)

var errNotRegular = errors.New("not a regular file")

// Open opens a file for reading, and nothing else: opening a FIFO waits for a writer, reading a
// device may never end.
func Open(name string) (*os.File, error) {
	if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
		return nil, cmp.Or(err, refused(name))
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may have been replaced since
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close() // nothing was read
		return nil, cmp.Or(err, refused(name))
	}
	return f, nil
}

func refused(name string) error {
	return &os.PathError{Op: "open", Path: name, Err: errNotRegular}
}
