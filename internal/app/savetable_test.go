package app

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/control"
)

// TestBansAreSavedLater: bans and unbans that could not be saved when they were made are
// saved once they can be, at intervals and at the end.
func TestBansAreSavedLater(t *testing.T) {
	t.Parallel()
	for name, interval := range map[string]time.Duration{"interval": 5 * time.Millisecond, "end": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "state")
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			a, _ := newApp(t, manyRules(1), func(c *config.Config) {
				c.Store.Memory.Snapshot, c.Store.Memory.SnapshotInterval = filepath.Join(folder, "counts"), interval
			})
			start(t, a)
			rule := a.engine.Rules().Rule("api", "r0")
			ban := func(key string) *control.Entry {
				return &control.Entry{
					Kind: control.Ban, Domain: rule.Domain, Rule: rule.Name, Scope: rule.Scope, Key: key, Reason: "of " + key,
					Until: time.Now().Add(time.Hour), Created: time.Now(),
				}
			}
			if err := a.control.Put(t.Context(), ban("ann")); err != nil {
				t.Fatal(err)
			}
			aside := folder + ".aside"
			if err := os.Rename(folder, aside); err != nil {
				t.Fatal(err)
			}
			if err := a.control.Put(t.Context(), ban("bob")); !errors.Is(err, control.ErrNotSaved) {
				t.Fatal(err)
			}
			if _, err := a.control.Delete(t.Context(), ban("ann")); !errors.Is(err, control.ErrNotSaved) {
				t.Fatal(err)
			}
			if err := os.Rename(aside, folder); err != nil {
				t.Fatal(err)
			}
			if name == "end" {
				if err := a.Stop(context.Background()); err != nil {
					t.Error(err)
				}
			}
			for began := time.Now(); ; time.Sleep(time.Millisecond) {
				table, err := control.OpenLocal(filepath.Join(folder, "counts.control"), time.Now)
				if err != nil {
					t.Fatal(err)
				}
				rows, _, err := table.Since(t.Context(), 0, 9)
				if err == nil && len(rows) == 1 && strings.Contains(rows[0].Value, "of bob") {
					break
				}
				if name == "end" || time.Since(began) > 30*time.Second {
					t.Fatalf("saved: %v, %v", rows, err)
				}
			}
		})
	}
}
