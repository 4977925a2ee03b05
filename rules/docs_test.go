package rules

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The examples in docs/rules.md are right.
func TestDocumentedExamplesParse(t *testing.T) {
	page, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 4 {
		t.Fatalf("found %d examples", len(blocks))
	}
	const head = "domain: d\nlimits:\n"
	for _, block := range blocks {
		src := block[1]
		indented := "    " + strings.ReplaceAll(strings.TrimSpace(src), "\n", "\n    ") + "\n"
		switch {
		case strings.HasPrefix(src, "domain:"):
		case strings.HasPrefix(src, "- "):
			src = head + indented
		default:
			src = head + "  - name: r\n    rate: 1/s\n" + indented
		}
		if _, diagnostics := Parse(Source{Name: "rules.md", Data: []byte(src)}); len(diagnostics) > 0 {
			t.Errorf("%v\n%s", Problems(diagnostics), src)
		}
	}
}

// The rows of the table of paths are right.
func TestDocumentedPathsMatch(t *testing.T) {
	page, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `(/[^`]*)` \\| (.*?) \\| (.*?) \\|$").FindAllStringSubmatch(string(page), -1)
	if len(rows) < 6 {
		t.Fatalf("found %d rows", len(rows))
	}
	paths := regexp.MustCompile("`(/[^`]*)`")
	for _, row := range rows {
		pattern, err := parsePath(row[1])
		if err != nil {
			t.Fatal(err)
		}
		for cell, want := range map[string]bool{row[2]: true, row[3]: false} {
			for _, path := range paths.FindAllStringSubmatch(cell, -1) {
				clean, _ := cleanPath(path[1], nil)
				if got := pattern.match(clean); got != want {
					t.Errorf("%s matches %s: %v", row[1], path[1], got)
				}
			}
		}
	}
}
