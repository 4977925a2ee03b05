package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// client is one of the clients, and how its runner is started.
type client struct {
	name       string
	frameworks []string // that there is middleware for
	command    func(t *testing.T) []string
}

func clients() []client {
	python := func(way string) func(*testing.T) []string {
		return func(t *testing.T) []string {
			return []string{program(t, "python3"), "../python/conformance.py", way}
		}
	}
	return []client{
		{"node", []string{"express", "fastify", "hono"}, func(t *testing.T) []string {
			return []string{program(t, "node"), "../node/conformance.mjs", builtNode(t), nodeModules(t)}
		}},
		{"python", []string{"wsgi"}, python("sync")},
		{"python asyncio", []string{"asgi"}, python("async")},
	}
}

// nodeModules returns the folder in which scripts/ensure-clients.sh installs packages.
func nodeModules(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(cache, "headgate", "clients")
	for _, needed := range []string{"typescript", "@hono/node-server"} {
		if _, err := os.Stat(filepath.Join(folder, "node_modules", needed)); err != nil {
			missing(t, needed+" is missing: run scripts/ensure-clients.sh")
		}
	}
	return folder
}

// builtNode builds the client for Node, which checks its types, and returns the folder.
func builtNode(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	// Node reads the type of the modules there.
	if err := os.WriteFile(filepath.Join(folder, "package.json"), []byte(`{"name":"headgate","type":"module","exports":"./index.js"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	compiler := filepath.Join(nodeModules(t), "node_modules", "typescript", "bin", "tsc")
	if out, err := exec.CommandContext(t.Context(), program(t, "node"), compiler, "-p", "../node", "--outDir", folder).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return folder
}

// program returns the path of a program. Without it the test is skipped, or fails if
// HEADGATE_REQUIRE_CLIENTS is 1, as in make test.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(t, err.Error())
	}
	return path
}

// missing skips the test, or fails it where everything must be there.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("HEADGATE_REQUIRE_CLIENTS") == "1" {
		t.Fatal(what)
	}
	t.Skip(what)
}
