package config_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

var update = flag.Bool("update", false, "rewrite testdata/settings.txt")

// TestSettingsAreAsPromised: testdata/settings.txt lists the names of all settings. A
// line that is taken away breaks configurations; see docs/compatibility.md.
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
	if diff := cmp.Diff(strings.Fields(string(text)), names); diff != "" {
		t.Errorf("if this is meant, run this test with -update, and say so in CHANGELOG.md:\n%s", diff)
	}
}
