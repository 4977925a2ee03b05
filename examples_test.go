package headgate_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// TestExamplesAreRight: what people copy from examples/ loads without a
// mistake. Go programs there are built with everything else.
func TestExamplesAreRight(t *testing.T) {
	files, err := filepath.Glob("examples/*/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	more, err := filepath.Glob("examples/*/*/headgate.yaml")
	if err != nil || len(more) < 2 {
		t.Fatal(more, err)
	}
	files = append(files, more...)
	for _, file := range files {
		t.Run(filepath.ToSlash(file), func(t *testing.T) {
			if strings.HasSuffix(file, "_test.yaml") {
				t.Skip("tests of rules are run by their own command")
			}
			if filepath.Base(file) != "headgate.yaml" {
				if _, err := rulefile.Load(file); err != nil {
					t.Error(err)
				}
				return
			}
			none := func(string) (string, bool) { return "", false }
			c, err := config.Load(config.Sources{Doors: app.Sections(), File: file, Environment: none})
			if err != nil {
				t.Fatal(err)
			}
			for _, paths := range [][]string{c.Rules, c.Candidate.Rules} {
				if _, err := rulefile.Load(paths...); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
