package config_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	diff "github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

var update = flag.Bool("update", false, "rewrite testdata/settings.txt and testdata/defaults.txt")

// TestSettingsAreAsPromised: testdata/settings.txt lists the names of all settings. A
// line that is taken away breaks configurations; see docs/start/install.md.
func TestSettingsAreAsPromised(t *testing.T) {
	names := config.Settings(app.Sections())
	slices.Sort(names)
	names = slices.Compact(names)
	const file = "testdata/settings.txt"
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(names, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := diff.Diff(strings.Fields(string(text)), names); d != "" {
		t.Errorf("if this is meant, run this test with -update, and say so in CHANGELOG.md:\n%s", d)
	}
}

// TestDefaultsAreAsPromised: testdata/defaults.txt is the configuration without any
// settings. A default that changes changes what a server does after an upgrade.
func TestDefaultsAreAsPromised(t *testing.T) {
	c, err := config.Load(config.Sources{Doors: app.Sections(), NoFile: true, Environment: none})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	for _, door := range app.Sections() {
		text = fmt.Appendf(text, "\n%s %s", cmp.Or(door.Key, "listen."+door.Name), door.Default)
	}
	const file = "testdata/defaults.txt"
	if *update {
		if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	promised, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := diff.Diff(strings.Split(strings.TrimSpace(string(promised)), "\n"), strings.Split(string(text), "\n")); d != "" {
		t.Errorf("if this is meant, run this test with -update, and say so in CHANGELOG.md:\n%s", d)
	}
}
