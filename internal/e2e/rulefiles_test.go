//go:build unix

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/follow"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// TestPipesAmongRules: a FIFO next to rules is not opened, since that would wait for a
// writer. Reloads still work, and counts are saved on shutdown.
func TestPipesAmongRules(t *testing.T) {
	folder, counts := t.TempDir(), filepath.Join(t.TempDir(), "counts")
	writeFile(t, filepath.Join(folder, "r.yaml"), loginRules)
	f := newFixture(t, loginRules, hello, func(c *config.Config) {
		c.Rules, c.Store.Memory.Snapshot = []string{folder}, counts
	})
	stop, reload, done := make(chan os.Signal), make(chan os.Signal), make(chan error, 1)
	go func() { done <- f.Run(context.Background(), app.Signals{Stop: stop, Reload: reload}, nil) }()
	f.journal.await(t, "rules loaded")
	for _, name := range []string{"pipe", "pipe.yaml"} {
		if err := syscall.Mkfifo(filepath.Join(folder, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reload <- syscall.SIGHUP
	f.journal.await(t, "rules not reloaded: the previous rules stay active") // pipe.yaml; pipe is not a rule file
	stop <- syscall.SIGTERM
	stopsAndSaves(t, done, counts)
}

// stopsAndSaves waits until Run returns, and checks that its counts are in a file.
func stopsAndSaves(t *testing.T, done <-chan error, counts string) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("still running")
	}
	if _, err := os.Stat(counts); err != nil {
		t.Errorf("counts are lost: %v", err)
	}
}

// TestWhichFilesAreRules: changes to other files do not delay a reload.
func TestWhichFilesAreRules(t *testing.T) {
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tree := mkdir(t, folder, "rules")
	real, link := filepath.Join(folder, "real"), filepath.Join(folder, "link.yaml")
	writeFile(t, real, loginRules)
	writeFile(t, filepath.Join(folder, "linked"), loginRules)
	for name, target := range map[string]string{link: real, filepath.Join(tree, "a.yaml"): filepath.Join(folder, "linked")} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	plain := follow.Files{Paths: []string{link, tree, filepath.Join(folder, "to_come.yaml")}}.Places()
	envoy := follow.Files{Paths: []string{tree}, Options: rulefile.Options{Compat: rules.CompatEnvoy}}.Places()
	for _, row := range []struct {
		name         string
		plain, envoy bool
	}{
		{"real", true, false},
		{"link.yaml", true, false},
		{"linked", true, true},
		{"to_come.yaml", true, false},
		{"access.log", false, false},
		{"other.yaml", false, false},
		{"rules/new.yml", true, true},
		{"rules/deep/new.yaml", true, true},
		{"rules/access.log", false, true},
		{"rules/x.yaml.tmp", false, true},
		{"rules/.x.yaml", false, true},
		{"rules/..x.yaml", false, false},
		{"rules/x_test.yaml", false, false},
	} {
		name := filepath.Join(folder, row.name)
		if plain(name) != row.plain || envoy(name) != row.envoy {
			t.Errorf("%s: %t, under compat: envoy %t", row.name, plain(name), envoy(name))
		}
	}
}
