package repotest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMetricsAreAsPromised: testdata/metrics.txt lists all metrics, with their types and
// labels. A line that is taken away breaks dashboards and alerts; see
// docs/start/install.md.
func TestMetricsAreAsPromised(t *testing.T) {
	var lines []string
	for file, text := range texts(t, ".go") {
		if strings.HasPrefix(file, "internal/") && !strings.HasPrefix(file, "internal/replay/") && !strings.HasSuffix(file, "_test.go") {
			lines = append(lines, metricsOf(t, file, text)...)
		}
	}
	slices.Sort(lines)
	compareTables(t, slices.Compact(lines))
	for i, line := range lines {
		lines[i], _, _ = strings.Cut(line, "\t")
	}
	lines = slices.Compact(lines)
	const file = "internal/repotest/testdata/metrics.txt"
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	promised := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range promised {
		if !slices.Contains(lines, line) {
			t.Errorf("gone: %s", line)
		}
	}
	for _, line := range lines {
		if !slices.Contains(promised, line) {
			t.Errorf("new: %s", line)
		}
	}
	if t.Failed() {
		t.Log("if this is meant: go test ./internal/repotest -run '^TestMetricsAreAsPromised$' -update, and say so in CHANGELOG.md")
	}
}

// compareTables compares the tables of docs/reference/metrics.md with the metrics. A table begins
// with a comment that has the beginnings of the names that it is of, without headgate_.
func compareTables(t *testing.T, lines []string) {
	t.Helper()
	const page = "docs/reference/metrics.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string]int{}
	want := regexp.MustCompile(`(?s)(<!-- metrics ([a-z_ ]+) -->\n).*?(<!-- end -->)`).ReplaceAllStringFunc(string(text), func(block string) string {
		beginnings, _, _ := strings.Cut(strings.TrimPrefix(block, "<!-- metrics "), " -->")
		rows := "<!-- metrics " + beginnings + " -->\n| metric | meaning |\n|---|---|\n"
		for _, line := range lines {
			metric, help, _ := strings.Cut(line, "\t")
			words := strings.Fields(metric)
			if slices.ContainsFunc(strings.Fields(beginnings), func(b string) bool { return strings.HasPrefix(words[0], "headgate_"+b) }) {
				tables[line]++
				kind := words[1]
				if len(words) > 2 {
					kind += ", by `" + strings.Join(words[2:], "`, `") + "`"
				}
				rows += "| `" + words[0] + "` | " + help + " A " + kind + ". |\n"
			}
		}
		return rows + "<!-- end -->"
	})
	for _, line := range lines {
		if tables[line] != 1 {
			t.Errorf("%s: %d tables have %s", page, tables[line], line)
		}
	}
	if want == string(text) {
		return
	}
	if !*update {
		t.Errorf("%s is not what the metrics say: go test ./internal/repotest -run '^TestMetricsAreAsPromised$' -update", page)
	} else if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
}

// metricsOf returns a line for each metric that a file makes: its name, type and labels, and
// after a tab what it means.
func metricsOf(t *testing.T, file, text string) (lines []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`^headgate_[a-z0-9_]+$`)
	made := map[string]bool{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		var kind string
		switch f := call.Fun.(type) {
		case *ast.SelectorExpr:
			kind = strings.ToLower(f.Sel.Name)
		case *ast.Ident:
			kind = strings.ToLower(f.Name)
		}
		labels := call.Args[1:]
		if kind == "newhistogramvec" { // of Histogram(name, help, buckets) and the labels
			inner, isCall := call.Args[0].(*ast.CallExpr)
			list, isList := call.Args[1].(*ast.CompositeLit)
			if !isCall || !isList {
				t.Errorf("%s: a histogram that is not made as the others are", file)
				return true
			}
			kind, call, labels = "histogram", inner, append([]ast.Expr{nil}, list.Elts...)
		}
		metric, _ := literal(call.Args[0])
		if !name.MatchString(metric) || made[metric] || len(labels) == 0 {
			return true
		}
		made[metric] = true
		line := metric + " " + kind
		for _, l := range labels[1:] { // after the help
			label, ok := literal(l)
			if !ok {
				t.Errorf("%s: %s has a label that is not written there", file, metric)
			}
			line += " " + label
		}
		help, ok := literal(call.Args[1])
		if !ok {
			t.Errorf("%s: the help of %s is not written there", file, metric)
		}
		lines = append(lines, line+"\t"+help)
		return true
	})
	for _, match := range regexp.MustCompile(`"(headgate_[a-z0-9_]+)"`).FindAllStringSubmatch(text, -1) {
		if !made[match[1]] {
			t.Errorf("%s: %s is not made by Counter, Gauge or NewHistogramVec", file, match[1])
		}
	}
	return lines
}

// TestEveryVersionLeftItsFiles: what each version in the changelog keeps on disk and in
// Redis is there for the test that later versions read it.
func TestEveryVersionLeftItsFiles(t *testing.T) {
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	versions := regexp.MustCompile(`(?m)^## \[(?:Unreleased\]: what )?([0-9]+\.[0-9]+\.[0-9]+)`).FindAllStringSubmatch(string(changelog), -1)
	if len(versions) == 0 {
		t.Fatal("the changelog names no version")
	}
	for _, v := range versions {
		for _, file := range []string{"rules.yaml", "after.txt", "memory.snapshot", "redis.keys", "queue.db", "queue.redis"} {
			if _, err := os.Stat(path.Join("internal/e2e/upgrade/testdata", "v"+v[1], file)); err != nil {
				t.Errorf("%v: make formats VERSION=v%s", err, v[1])
			}
		}
	}
}
