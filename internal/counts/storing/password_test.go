package storing

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPasswordFile: the password is that of the file, and the last one while that is missing,
// or is a FIFO whose writer never comes.
func TestPasswordFile(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "password")
	var log strings.Builder
	f := &passwordFile{name: name, password: "first", log: slog.New(slog.NewTextHandler(&log, nil))}
	write := func(text string) error { return os.WriteFile(name, []byte(text), 0o600) }
	for _, row := range []struct {
		name   string
		change func() error
		want   string
		said   string
	}{
		{"missing", func() error { return nil }, "first", "no such file"},
		{"a file", func() error { return write("second\n") }, "second", "has changed"},
		{"a FIFO", func() error { return errors.Join(os.Remove(name), syscall.Mkfifo(name, 0o600)) }, "second", "not a regular file"},
		{"a file again", func() error { return errors.Join(os.Remove(name), write("third")) }, "third", "has changed"},
	} {
		log.Reset()
		if err := row.change(); err != nil {
			t.Fatal(err)
		}
		if got := f.read(); got != row.want || !strings.Contains(log.String(), row.said) || !strings.Contains(log.String(), name) {
			t.Errorf("%s: %q, log %q", row.name, got, log.String())
		}
	}
}
