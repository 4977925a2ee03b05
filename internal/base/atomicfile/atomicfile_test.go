package atomicfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/internal/base/atomicfile"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path, other := filepath.Join(folder, "file"), filepath.Join(folder, "other")
	is := func(path, want string) {
		t.Helper()
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v, want %q", filepath.Base(path), text, err, want)
		}
	}
	if err := os.WriteFile(other, []byte("another's"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first", "second", ""} {
		// A link already at the name of the temporary file.
		if err := os.Symlink(other, path+".new"); err != nil {
			t.Fatal(err)
		}
		if err := atomicfile.Write(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		is(path, text)
		is(other, "another's")
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v: others can read it", info.Mode(), err)
	}
	if list, err := os.ReadDir(folder); err != nil || len(list) != 2 {
		t.Errorf("%d files, %v: something is left", len(list), err)
	}
	if err := os.Mkdir(filepath.Join(folder, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "in the way", "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(filepath.Join(folder, "in the way"), []byte("x")); err == nil {
		t.Error("a folder with something in it was replaced")
	}
	if _, err := os.Lstat(filepath.Join(folder, "in the way.new")); err == nil {
		t.Error("what could not take its place is left")
	}
}
