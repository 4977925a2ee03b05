// Package atomicfile replaces small files atomically.
package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces the file at path: at any time either the old or the new content is
// complete on disk. Only the owner can read the new file. After an error the old file
// is unchanged. Concurrent calls for the same path are not safe.
func Write(path string, text []byte) error {
	return WriteBy(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// WriteBy is Write with the output of a function.
func WriteBy(path string, write func(io.Writer) error) (err error) {
	temporary := path + ".new"
	// Do not write through a file or link that is already there.
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary)
		}
	}()
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return err
	}
	if folder, err := os.Open(filepath.Dir(path)); err == nil {
		_ = folder.Sync() // not supported on every system
		_ = folder.Close()
	}
	return nil
}
