package headgate_test

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMetricsAreAsPromised: testdata/metrics.txt lists the names of all metrics. A line
// that is taken away breaks dashboards and alerts; see docs/compatibility.md.
func TestMetricsAreAsPromised(t *testing.T) {
	name := regexp.MustCompile(`"(headgate_[a-z0-9_]+)"`)
	var names []string
	for file, text := range texts(t, ".go") {
		if !strings.HasPrefix(file, "internal/") || strings.HasPrefix(file, "internal/replay/") || strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, match := range name.FindAllStringSubmatch(text, -1) {
			names = append(names, match[1])
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	const file = "testdata/metrics.txt"
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(names, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	promised := strings.Fields(string(text))
	for _, n := range promised {
		if !slices.Contains(names, n) {
			t.Errorf("gone: %s", n)
		}
	}
	for _, n := range names {
		if !slices.Contains(promised, n) {
			t.Errorf("new: %s", n)
		}
	}
	if t.Failed() {
		t.Log("if this is meant: go test -run '^TestMetricsAreAsPromised$' . -update, and say so in CHANGELOG.md")
	}
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
			if _, err := os.Stat(path.Join("internal/app/upgrade/testdata", "v"+v[1], file)); err != nil {
				t.Errorf("%v: make formats VERSION=v%s", err, v[1])
			}
		}
	}
}
