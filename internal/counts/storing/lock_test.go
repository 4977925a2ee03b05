//go:build unix && !aix && !solaris

package storing

import (
	"path/filepath"
	"syscall"
	"testing"
)

// TestUnlockedWhileAProgramStarts: a fork has the file until its program runs, and does not
// keep it locked.
func TestUnlockedWhileAProgramStarts(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	f, ok, err := lockFile(name)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	forked, err := syscall.Dup(int(f.Fd())) // as a fork has it
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(forked) }()
	if err := unlockFile(f); err != nil {
		t.Fatal(err)
	}
	again, ok, err := lockFile(name)
	if err != nil || !ok {
		t.Fatalf("locked: %t, %v", !ok, err)
	}
	_ = unlockFile(again)
}
