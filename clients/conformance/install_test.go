package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// runIn runs a command in a folder, with more variables, and returns what it prints.
func runIn(t *testing.T, folder string, variables []string, command ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), command[0], command[1:]...)
	c.Dir, c.Env = folder, append(os.Environ(), variables...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", command, err, out)
	}
	return string(out)
}

// copied copies the sources of a client, as builds write into them.
func copied(t *testing.T, client string) string {
	t.Helper()
	folder := t.TempDir()
	for name := range strings.FieldsSeq(runIn(t, "../"+client, nil, program(t, "git"), "ls-files")) {
		text, err := os.ReadFile(filepath.Join("..", client, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(folder, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// installedPython installs the client with pip, without a network, and returns the
// folder where packages then are. It is empty if no Python here can do that.
func installedPython(t *testing.T) string {
	t.Helper()
	for _, python := range []string{program(t, "python3"), "/usr/bin/python3"} {
		// In this order: Debian's setuptools does not work after pip.
		if exec.CommandContext(t.Context(), python, "-c", "import setuptools, wheel, pip").Run() != nil {
			continue
		}
		target := filepath.Join(t.TempDir(), "packages")
		runIn(t, copied(t, "python"), []string{"PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_ROOT_USER_ACTION=ignore"},
			python, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--target", target, ".")
		return target
	}
	return ""
}

// installedNode packs the client and installs it with npm, without a network, and
// returns the project with it.
func installedNode(t *testing.T) string {
	t.Helper()
	source, project := copied(t, "node"), t.TempDir()
	compiler := filepath.Join(nodeModules(t), "node_modules", "typescript", "bin", "tsc")
	runIn(t, source, nil, program(t, "node"), compiler)
	settings := []string{"npm_config_cache=" + t.TempDir(), "npm_config_offline=true", "npm_config_update_notifier=false", "npm_config_audit=false", "npm_config_fund=false"}
	runIn(t, source, settings, program(t, "npm"), "pack", "--ignore-scripts", "--pack-destination", project) // prepare, the script, has run above
	if err := os.WriteFile(filepath.Join(project, "package.json"), []byte(`{"type":"module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	runIn(t, project, settings, program(t, "npm"), "install", "./headgate-0.1.0.tgz")
	return project
}

// TestPythonInstalls: pip installs what the client needs, its types included, and
// nothing else.
func TestPythonInstalls(t *testing.T) {
	t.Parallel()
	target := installedPython(t)
	if target == "" {
		t.Skip("no Python with pip, setuptools and wheel: run scripts/ensure-python.sh")
	}
	list, err := filepath.Glob(filepath.Join(target, "*"))
	if err != nil || len(list) != 2 {
		t.Errorf("%q, %v: want headgate and its metadata", list, err)
	}
	for _, name := range []string{"headgate/py.typed", "headgate/aio.py", "headgate-0.1.0.dist-info/METADATA"} {
		if _, err := os.Stat(filepath.Join(target, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestPythonTypes: mypy has nothing to say, about the client and about a program that
// uses it, and notices a mistake.
func TestPythonTypes(t *testing.T) {
	t.Parallel()
	mypy, err := exec.LookPath("mypy")
	if err != nil {
		t.Skip("no mypy: run scripts/ensure-python.sh")
	}
	source := copied(t, "python")
	cache := "MYPY_CACHE_DIR=" + t.TempDir()
	runIn(t, source, []string{cache}, mypy, "--strict", "headgate")
	right := filepath.Join(source, "right.py")
	if err := os.WriteFile(right, []byte("from headgate import Client\n\nallowed: bool = Client().check(\"api\", {\"user\": \"ada\"}).allowed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	runIn(t, source, []string{cache}, mypy, "--strict", right)
	wrong := filepath.Join(source, "wrong.py")
	if err := os.WriteFile(wrong, []byte("from headgate import Client\n\nallowed: str = Client().check(\"api\", {\"user\": \"ada\"}).allowed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), mypy, "--strict", wrong)
	c.Dir, c.Env = source, append(os.Environ(), cache)
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "Incompatible types in assignment") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestNodeInstalls: npm installs the compiled client and its types, and nothing else.
func TestNodeInstalls(t *testing.T) {
	t.Parallel()
	project := installedNode(t)
	for _, name := range []string{"src", "conformance.mjs", "node_modules"} {
		if _, err := os.Stat(filepath.Join(project, "node_modules", "headgate", name)); err == nil {
			t.Errorf("%s is installed", name)
		}
	}
	program := "import { Client, fastify } from \"headgate\";\nfastify(new Client(), \"api\", { attributes: (request) => ({ user: String(request.headers[\"x-user\"]) }) });\nconst d = await new Client(\"http://127.0.0.1:8080\").check(\"api\", { user: \"ada\" });\nconst allowed: boolean = d.allowed;\nconsole.log(allowed);\n"
	compiler := filepath.Join(nodeModules(t), "node_modules", "typescript", "bin", "tsc")
	check := []string{"node", compiler, "--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "use.ts"}
	for text, want := range map[string]string{program: "", strings.Replace(program, ": boolean", ": string", 1): "is not assignable to type 'string'"} {
		if err := os.WriteFile(filepath.Join(project, "use.ts"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := exec.CommandContext(t.Context(), check[0], check[1:]...)
		c.Dir = project
		if out, err := c.CombinedOutput(); (err == nil) != (want == "") || !strings.Contains(string(out), want) {
			t.Errorf("%s%v\n%s", text, err, out)
		}
	}
}
