package memory

import (
	"fmt"
	"os"

	"github.com/headgate/headgate/internal/base/atomicfile"
)

// SaveFile writes a snapshot to path. It writes path.new first, readable by its
// owner only, and renames that, so that path has at any time either the old
// snapshot or the new one, whole and on the disk. A symbolic link at path is
// replaced, not followed, and so is whatever is at path.new.
func (s *Store) SaveFile(path string) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	if err := atomicfile.WriteBy(path, s.Save); err != nil {
		return fmt.Errorf("memory: saving a snapshot: %w", err)
	}
	return nil
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
