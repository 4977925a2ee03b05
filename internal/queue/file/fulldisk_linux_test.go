package file_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/queue"
)

// smallDisk returns a separate file system of a few megabytes.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("a small file system takes root to mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// When the disk is full, requests are refused, and accepted ones stay as they are, also across
// a restart. When there is space again, everything works.
func TestFullDisk(t *testing.T) {
	dir := smallDisk(t)
	path, ballast := filepath.Join(dir, "queue"), filepath.Join(dir, "ballast")
	s, _ := open(t, path)
	accepted := put(t, s, 20, 10_000)
	if len(accepted) != 20 {
		t.Fatalf("%d accepted", len(accepted))
	}
	if err := os.WriteFile(ballast, make([]byte, 8<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	maps.Copy(accepted, put(t, s, 200, 20_000)) // some may fit into free pages
	p := queue.DefaultPolicy()
	refused := 0
	for i := range 20 {
		e := entry(i, 500_000)
		switch _, err := s.Put(t.Context(), e, &p); {
		case errors.Is(err, queue.ErrUnavailable) && errors.Is(err, syscall.ENOSPC):
			refused++
		case err == nil:
			accepted[e.ID] = e
		default:
			t.Errorf("%v", err)
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
	check(t, s, accepted)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, repair := open(t, path) // still full
	if repair != nil {
		t.Fatal(repair.Err)
	}
	check(t, s, accepted)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	maps.Copy(accepted, put(t, s, 50, 1000))
	check(t, s, accepted)
	t.Logf("%d refused, %d accepted", refused, len(accepted))
}
