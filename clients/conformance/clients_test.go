package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
		{"java", []string{"servlet"}, func(t *testing.T) []string {
			return []string{program(t, "java"), "-Djava.io.tmpdir=" + t.TempDir(), "-cp", builtJava(t, "main", "test"), "io.github.headgate.Conformance"}
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

// builtJava builds parts of the client for Java (main, test) without a warning, and
// returns the path of its classes and of Tomcat's.
func builtJava(t *testing.T, parts ...string) string {
	t.Helper()
	compiler, folder, server := program(t, "javac"), t.TempDir(), tomcat(t)
	// What users get needs nothing but the interface of servlets.
	libraries := filepath.Join(filepath.Dir(server[0]), "tomcat10-servlet-api.jar")
	for _, part := range parts {
		sources, err := filepath.Glob("../java/src/" + part + "/java/io/github/headgate/*.java")
		if err != nil || len(sources) == 0 {
			t.Fatal("no sources of ", part, err)
		}
		arguments := append([]string{"-proc:none", "-Xlint:all,-path", "-Werror", "--release", "17", "-cp", folder + ":" + libraries, "-d", folder}, sources...)
		if out, err := exec.CommandContext(t.Context(), compiler, arguments...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		libraries = strings.Join(server, ":")
	}
	return folder + ":" + strings.Join(server, ":")
}

// tomcat returns the libraries of Tomcat 10, which scripts/ensure-java.sh unpacks unless
// they are installed.
func tomcat(t *testing.T) []string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{"/", filepath.Join(cache, "headgate", "tomcat")} {
		if found, _ := filepath.Glob(filepath.Join(root, "usr/share/java/tomcat10-*[a-z].jar")); len(found) > 0 {
			return found
		}
	}
	missing(t, "Tomcat 10 is missing: run scripts/ensure-java.sh")
	return nil
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
