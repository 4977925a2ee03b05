package rules_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

var update = flag.Bool("update", false, "rewrite the golden files of testdata/bad")

// Each file in testdata/bad has one mistake. The .txt file next to it has the expected
// messages, with excerpts.
func TestBadFilesAreExplained(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 60 {
		t.Fatalf("found %d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			set, diagnostics := rulefile.Parse(rulefile.Source{Name: filepath.Base(file), Data: src})
			if (set == nil) != diagnostic.HasErrors(diagnostics) {
				t.Errorf("a Ruleset is there: %v, with %v", set != nil, diagnostics)
			}
			if len(diagnostics) == 0 {
				t.Error("nothing was found wrong")
			}
			var got strings.Builder
			for _, d := range diagnostics {
				got.WriteString(d.String() + "\n" + diagnostic.Excerpt(src, d))
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".txt", got.String())
		})
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestGoodFilesLoadWithoutWarnings(t *testing.T) {
	set, err := rulefile.Load("testdata/good")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range set.Warnings() {
		t.Error(w)
	}
	want := rules.Stats{Domains: 9, Rules: 63, Files: 8, Disabled: 1}
	if diff := cmp.Diff(want, set.Stats()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"api", "empty.example", "gateway", "gateway-envoy", "listed", "mixed", "outcomes", "shop", "storefront"}, set.Domains()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
