package memory

import (
	"fmt"
	"os"
	"path/filepath"
)

// SaveFile writes a snapshot to path. It writes another file beside it first
// and renames that, so that path has at any time either the old snapshot or the
// new one, whole and on the disk.
func (s *Store) SaveFile(path string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return fmt.Errorf("memory: saving a snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			// The snapshot at path is still the old one; what is left of
			// the new one is of no use.
			_ = os.Remove(f.Name())
			err = fmt.Errorf("memory: saving a snapshot: %w", err)
		}
	}()
	if err = s.Save(f); err == nil {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// LoadFile reads the snapshot at path; see [Store.Load]. If there is none, the
// error wraps fs.ErrNotExist. If it is damaged, the error wraps
// [ErrDamagedSnapshot], and [SetAside] moves it out of the way.
func (s *Store) LoadFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("memory: loading a snapshot: %w", err)
	}
	defer f.Close()
	if err := s.Load(f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// SetAside renames the snapshot at path, so that the next SaveFile does not
// overwrite it, and returns its new name: path.damaged, or path.damaged-2 and so
// on.
func SetAside(path string) (string, error) {
	to := path + ".damaged"
	for i := 2; ; i++ {
		// Link fails if the name is taken; Rename would overwrite it.
		err := os.Link(path, to)
		if err == nil {
			break
		}
		if !os.IsExist(err) {
			return "", fmt.Errorf("memory: setting a snapshot aside: %w", err)
		}
		to = fmt.Sprintf("%s.damaged-%d", path, i)
	}
	if err := os.Remove(path); err != nil {
		return "", fmt.Errorf("memory: setting a snapshot aside: %w", err)
	}
	return to, nil
}
