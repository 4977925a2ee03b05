package atomicfile_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/internal/base/atomicfile"
)

// A file that cannot be synced replaces nothing. Here that is a pipe in place of the
// new file: it fails to sync, and closes without an error.
func TestUnsyncedFileReplacesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := atomicfile.WriteBy(path, func(w io.Writer) error {
		reading, writing, err := os.Pipe()
		if err != nil {
			return err
		}
		f, ok := w.(*os.File)
		if !ok {
			t.Fatalf("it is written by a %T", w)
		}
		return errors.Join(unix.Dup3(int(writing.Fd()), int(f.Fd()), unix.O_CLOEXEC), reading.Close(), writing.Close())
	})
	if !errors.Is(err, unix.EINVAL) {
		t.Errorf("%v, want that of fsync", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "old" {
		t.Errorf("%q, %v", text, err)
	}
}
