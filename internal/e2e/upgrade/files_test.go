package upgrade_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/base/lifetime"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/counts/storing"
	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// opened returns a store with these settings, and the bans and overrides that it has
// found. It is closed by calling end.
func opened(t *testing.T, folder string, settings map[string]string) (store *storing.Store, entries int, end func()) {
	t.Helper()
	c, err := config.Load(config.Sources{Doors: app.Sections(), NoFile: true, Flags: settings, Environment: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	began, life := time.Now(), new(lifetime.Lifetime)
	o := storing.Options{
		Config: &c.Store, Clock: time.Now, Elapsed: func() time.Duration { return time.Since(began) },
		Logger: slog.New(slog.DiscardHandler), Register: func(...prometheus.Collector) {}, Life: life,
	}
	s, about, err := storing.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(read(t, folder, "rules.yaml"))})
	if rs == nil {
		t.Fatal(diagnostics)
	}
	m, err := s.Control(control.Options{Engine: engine.New(s.Counts, rs, about...), Clock: time.Now, Logger: o.Logger})
	if err != nil {
		t.Fatal(err)
	}
	return s, len(m.All()), life.End
}

// TestWhereFilesAre: the files next to a snapshot have the names that they had, and the
// table in Redis too. Otherwise an upgrade would lift all bans.
func TestWhereFilesAre(t *testing.T) {
	folders, err := filepath.Glob("testdata/v*")
	if err != nil || len(folders) == 0 {
		t.Fatal("no versions", err)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			want := strings.Count(read(t, folder, "memory.control"), "\n") - 1
			t.Run("memory", func(t *testing.T) {
				dir := t.TempDir()
				secret := strings.Repeat("OF0THE1VERSION", 4)[:52]
				write(t, dir, "state", read(t, folder, "memory.snapshot"))
				write(t, dir, "state.control", read(t, folder, "memory.control"))
				write(t, dir, "state.secret", secret)
				s, entries, end := opened(t, folder, map[string]string{"store.memory.snapshot": filepath.Join(dir, "state")})
				if entries != want {
					t.Errorf("%d bans and overrides, want %d", entries, want)
				}
				if _, err := os.Stat(filepath.Join(dir, "state.secret")); err == nil {
					t.Error("the secret of tokens was not taken")
				}
				if err := s.SaveSecret(); err != nil {
					t.Fatal(err)
				}
				end()
				if got := read(t, dir, "state.secret"); !strings.HasPrefix(got, secret) {
					t.Errorf("the secret of tokens is %q, want %q", got, secret)
				}
			})
			t.Run("redis", func(t *testing.T) {
				server := redistest.Standalone(t)
				restore(t, server, read(t, folder, "redis.keys"))
				_, entries, end := opened(t, folder, map[string]string{"store": "redis://" + server.Addr})
				end()
				if entries != want {
					t.Errorf("%d bans and overrides, want %d", entries, want)
				}
			})
		})
	}
}
