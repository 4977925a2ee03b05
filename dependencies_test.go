package headgate_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDependenciesAreExplained: every module that a go.mod requires by itself
// has its reason in docs/dependencies.md.
func TestDependenciesAreExplained(t *testing.T) {
	page, err := os.ReadFile("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"go.mod", "benchmarks/go.mod", "tools/go.mod"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		required := direct(string(text))
		if len(required) == 0 {
			t.Errorf("%s requires nothing", file)
		}
		for _, path := range required {
			named := regexp.MustCompile(regexp.QuoteMeta(path) + `(?:[^/\w-]|$)`) // not as the beginning of another
			if path != module && !named.Match(page) {
				t.Errorf("%s requires %s, of which docs/dependencies.md says nothing", file, path)
			}
		}
	}
}

// direct returns the modules that the text of a go.mod requires, except those
// that only a dependency needs, and the packages of the tools it names.
func direct(text string) []string {
	var paths []string
	block := ""
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == ")":
			block = ""
		case len(words) == 2 && words[1] == "(":
			block = words[0]
		case strings.HasSuffix(strings.TrimSpace(line), "// indirect"):
		case words[0] == "require", words[0] == "tool":
			paths = append(paths, tool(words[1]))
		case block == "require", block == "tool":
			paths = append(paths, tool(words[0]))
		}
	}
	return paths
}

// tool returns the path without the folder of a command.
func tool(path string) string {
	path, _, _ = strings.Cut(path, "/cmd/")
	return path
}
