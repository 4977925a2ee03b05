package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
)

// TestOneSnapshotOneProcess: a second process with the same snapshot is refused until
// the first has stopped.
func TestOneSnapshotOneProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	snapshot := func(c *config.Config) { c.Store.Memory.Snapshot = path }
	first := run(t, loginRules, hello, snapshot)
	second := newFixture(t, loginRules, hello, snapshot)
	if err := second.Start(context.Background()); err == nil || !strings.Contains(err.Error(), "another process saves its counts to "+path) {
		t.Errorf("a second process: %v", err)
	}
	if err := first.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	second.renew(t)
	second.start(t)
}

// TestOneSnapshotUnderTwoNames: the same through a symbolic link, even before the file
// exists. Saving replaces the file, not the link.
func TestOneSnapshotUnderTwoNames(t *testing.T) {
	folder := t.TempDir()
	mkdir(t, folder, "data", "deep")
	file := filepath.Join(folder, "data", "state")
	links := map[string]string{
		"absolute": file, "relative": filepath.Join("data", "state"), "again": "absolute",
		"folder": "data", "deep": filepath.Join("data", "deep"), "up": "deep/../state",
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"absolute", "relative", "again", filepath.Join("folder", "state"), "up"} {
		path := filepath.Join(folder, name)
		first := run(t, loginRules, hello, func(c *config.Config) { c.Store.Memory.Snapshot = path })
		for _, other := range []string{file, filepath.Join(folder, "relative")} {
			second := newFixture(t, loginRules, hello, func(c *config.Config) { c.Store.Memory.Snapshot = other })
			if err := second.Start(context.Background()); err == nil || !strings.Contains(err.Error(), "another process saves its counts to "+other) {
				t.Errorf("a second process at %s, the first at %s: %v", other, name, err)
			}
		}
		if err := first.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
			t.Errorf("by %s: %v %v", name, info, err)
		}
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
	}
	for name, to := range links {
		if got, err := os.Readlink(filepath.Join(folder, name)); err != nil || got != to {
			t.Errorf("the link %s leads to %q: %v", name, got, err)
		}
	}
}

// TestSnapshotToNowhere: an unwritable file prevents the start, and the error says why.
func TestSnapshotToNowhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodir", "counts")
	f := newFixture(t, loginRules, hello, func(c *config.Config) { c.Store.Memory.Snapshot = path })
	err := f.Start(context.Background())
	if err == nil || !strings.Contains(err.Error(), "counts cannot be saved to "+path) || !strings.Contains(err.Error(), "no such file or directory") {
		t.Errorf("%v", err)
	}
}
