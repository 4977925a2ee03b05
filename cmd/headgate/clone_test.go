package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A Go program gets the library and each adapter from a clone as docs/start/install.md says: by
// the line of the library, and one for the adapter.
func TestModulesFromAClone(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/start/install.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^go mod edit -replace (\S+)=/path/to/headgate\S*$`).FindAllStringSubmatch(string(page), -1)
	adapters, err := filepath.Glob("../../middleware/*/go.mod")
	if err != nil || len(adapters) != 3 || len(lines) != 1+len(adapters) {
		t.Fatalf("%d lines for the library and %d adapters, %v", len(lines), len(adapters), err)
	}
	for i, line := range lines {
		t.Run(line[1], func(t *testing.T) {
			t.Parallel()
			folder, imported := t.TempDir(), line[1]
			script := "set -e\ngo mod init example.com/shop\n" + lines[0][0] + "\n"
			if i == 0 {
				imported += "/middleware/httplimit"
			} else {
				script += line[0] + "\n"
			}
			if err := os.WriteFile(filepath.Join(folder, "shop.go"), []byte("package shop\n\nimport _ \""+imported+"\"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			script = strings.ReplaceAll(script, "/path/to/headgate", root) + "go list -mod=mod -deps .\n" // tidy also wants what only tests need
			if out, err := inClone(t, folder, script); err != nil || !strings.Contains(out, "\n"+imported+"\n") {
				if i > 0 && strings.Contains(out, "file:///") { // nobody has downloaded the framework
					t.Skip(out)
				}
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// inClone runs a script with the modules that were downloaded before, and no others.
func inClone(t *testing.T, folder, script string) (string, error) {
	t.Helper()
	needs(t, "go")
	needs(t, "bash")
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "bash", "-c", script)
	command.Dir = folder
	command.Env = append(os.Environ(), "GOWORK=off", "GOSUMDB=off", "GOPROXY=file://"+strings.TrimSpace(string(cache))+"/cache/download")
	out, err := command.CombinedOutput()
	return string(out), err
}
