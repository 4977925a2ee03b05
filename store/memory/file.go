package memory

import (
	"fmt"
	"os"
	"path/filepath"
)

// SaveFile writes a snapshot to path. It writes path.new first, readable by its
// owner only, and renames that, so that path has at any time either the old
// snapshot or the new one, whole and on the disk. A symbolic link at path is
// replaced, not followed.
func (s *Store) SaveFile(path string) (err error) {
	s.saving.Lock()
	defer s.saving.Unlock()
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
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
	defer func() { _ = f.Close() }() // it was only read from
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
		if _, err := os.Lstat(to); err != nil {
			break // no such file; whatever else it may be, Rename will say
		}
		to = fmt.Sprintf("%s.damaged-%d", path, i)
	}
	if err := os.Rename(path, to); err != nil {
		return "", fmt.Errorf("memory: setting a snapshot aside: %w", err)
	}
	return to, nil
}
