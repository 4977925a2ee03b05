// Package atomicfile replaces small files whole or not at all.
package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces the file at path, so that at any time either the old one or the
// new one is there, whole and on the disk. The new one can be read by its owner
// only. After an error the old one is there. Not safe for two at a time with the
// same path.
func Write(path string, text []byte) error {
	return WriteBy(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// WriteBy is Write with what a function writes.
func WriteBy(path string, write func(io.Writer) error) (err error) {
	beside := path + ".new"
	// What a crash has left, or somebody has put there, is not written through.
	if err := os.Remove(beside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(beside)
		}
	}()
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(beside, path)
	}
	if err != nil {
		return err
	}
	if folder, err := os.Open(filepath.Dir(path)); err == nil {
		_ = folder.Sync() // not every system can
		_ = folder.Close()
	}
	return nil
}
