package repotest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDependenciesAreExplained: every module that a go.mod requires directly
// has its reason in docs/dependencies.md.
func TestDependenciesAreExplained(t *testing.T) {
	page, err := os.ReadFile("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(adapters(t), "go.mod", "benchmarks/go.mod", "chaos/go.mod", "differential/envoy/go.mod", "dist/packaging/go.mod", "dist/helm/go.mod", "tools/go.mod") {
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

// TestActionsArePinned: what CI runs of others is named by digest, and CI looks for
// known vulnerabilities.
func TestActionsArePinned(t *testing.T) {
	files, err := filepath.Glob(".github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	all := ""
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all += string(text)
		for _, use := range regexp.MustCompile(`uses: *(\S+)`).FindAllStringSubmatch(string(text), -1) {
			if !regexp.MustCompile(`@[0-9a-f]{40}$`).MatchString(use[1]) {
				t.Errorf("%s uses %s, which may become something else", file, use[1])
			}
		}
	}
	if !strings.Contains(all, "uses:") || !strings.Contains(all, "make vuln") && !strings.Contains(all, "govulncheck") {
		t.Error("no workflow uses anything, or none looks for vulnerabilities")
	}
}

// TestReleasesHaveTheirGo: .go-version names the Go that releases are built with, wherever
// that is. Only the least version is in go.mod, whose flaws are known by now.
func TestReleasesHaveTheirGo(t *testing.T) {
	version, err := os.ReadFile(".go-version")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^1\.[0-9]+\.[0-9]+\n$`).Match(version) {
		t.Errorf(".go-version is %q, want a version such as 1.26.8", version)
	}
	for file, want := range map[string]string{
		".github/workflows/release.yml":         "go-version-file: .go-version\n",
		".github/workflows/vulnerabilities.yml": "go-version-file: .go-version ",
		"Makefile":                              "GOTOOLCHAIN=go$(shell cat .go-version) $(GO) run . --version",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s does not use .go-version", file)
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
	path, _, _ = strings.Cut(path, "/src/")
	return path
}

// adapters returns the go.mod files of the middleware for frameworks.
func adapters(t *testing.T) []string {
	t.Helper()
	adapters, err := filepath.Glob("middleware/*/go.mod")
	if err != nil || len(adapters) == 0 {
		t.Fatal(adapters, err)
	}
	return append(adapters, "examples/chi/go.mod")
}

// TestAdaptersFollow: the modules of the adapters are built from this code,
// with the same version of Go.
func TestAdaptersFollow(t *testing.T) {
	own, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go .*$`).Find(own)
	for _, file := range adapters(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		up := strings.Repeat("../", strings.Count(file, "/"))
		for _, line := range []string{string(version), "replace github.com/headgate/headgate => " + up} {
			if !strings.Contains(string(text), line+"\n") {
				t.Errorf("%s has no line %q", file, line)
			}
		}
	}
}
