package repotest

import (
	"io/fs"
	"os"
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

// TestExamplesAreListed: each folder of examples/ has a README, and the list leads to it.
func TestExamplesAreListed(t *testing.T) {
	list, err := os.ReadFile("examples/README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir("examples")
	if err != nil || len(files) < 30 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := file.Name()
		if !file.IsDir() {
			continue
		}
		if _, err := os.Stat("examples/" + name + "/README.md"); err != nil {
			t.Error(err)
		}
		if !strings.Contains(string(list), "["+name+"]("+name+")") {
			t.Errorf("examples/README.md does not list %s", name)
		}
	}
}

// TestNothingToDownloadIsALink: a raw download of a link, or a checkout on Windows, is the
// path that it leads to.
func TestNothingToDownloadIsALink(t *testing.T) {
	for _, folder := range []string{"dist", "docs", "examples"} {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type()&fs.ModeSymlink != 0 && !strings.Contains(path, "node_modules") {
				t.Errorf("%s is a link", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
