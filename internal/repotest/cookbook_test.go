package repotest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/replay/offline"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// TestCookbook: each recipe loads, passes its own test, has a short README, and is what
// its page shows.
func TestCookbook(t *testing.T) {
	t.Parallel()
	const page = "docs/start/cookbook.md"
	shown, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	recipes, err := filepath.Glob("examples/cookbook/*")
	if err != nil || len(recipes) < 10 {
		t.Fatal(recipes, err)
	}
	for _, recipe := range recipes {
		recipe = filepath.ToSlash(recipe)
		if recipe == "examples/cookbook/README.md" {
			continue
		}
		if _, err := rulefile.Load(recipe + "/rules.yaml"); err != nil {
			t.Error(err)
		}
		passes(t, recipe)
		for _, name := range []string{"rules.yaml", "rules_test.yaml"} {
			text, err := os.ReadFile(filepath.Join(recipe, name))
			if err != nil || !strings.Contains(string(shown), "```yaml\n"+string(text)+"```\n") {
				t.Errorf("%s does not show %s/%s: %v", page, recipe, name, err)
			}
		}
		if readme, err := os.ReadFile(filepath.Join(recipe, "README.md")); err != nil || strings.Count(string(readme), "\n") > 10 {
			t.Errorf("%s/README.md: %v, or more than ten lines", recipe, err)
		}
	}
}

// TestPictureOfAlgorithms: docs/start/which-algorithm.md draws what each algorithm answers.
func TestPictureOfAlgorithms(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/start/which-algorithm.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^(\w+) +([#.]+)$`).FindAllStringSubmatch(string(page), -1)
	if len(rows) != 6 {
		t.Fatalf("the picture has %d rows, want one for each algorithm", len(rows))
	}
	for _, row := range rows {
		name, answers := row[1], row[2]
		rule := "{name: x, key: client_ip, rate: 5/minute, algorithm: " + name
		if name == "sliding_buckets" {
			rule += ", edge: strict"
		}
		var test strings.Builder
		test.WriteString("start: 2026-01-01T11:00:30\ntests:\n  - name: " + name + "\n    request: {client_ip: 192.0.2.1}\n    trace:\n")
		for i, answer := range answers {
			fmt.Fprintf(&test, "      - {at: %ds, expect: %s}\n", 5*i, map[rune]string{'#': "allowed", '.': "refused"}[answer])
		}
		folder := t.TempDir()
		for file, text := range map[string]string{"rules.yaml": "domain: x\nlimits:\n  - " + rule + "}\n", "rules_test.yaml": test.String()} {
			if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		passes(t, folder)
	}
}

// passes fails unless the rule tests of a folder pass, and there are some.
func passes(t *testing.T, folder string) {
	t.Helper()
	tests := offline.RuleTests{Paths: []string{folder}}
	result, err := tests.Run(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	if len(result.Tests) == 0 {
		t.Errorf("%s has no rule tests", folder)
	}
	for _, one := range result.Tests {
		if !one.Passed {
			t.Errorf("%s: %s: %+v", folder, one.Name, one)
		}
	}
}
