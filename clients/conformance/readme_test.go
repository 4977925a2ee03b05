package conformance

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// readme is the README of a client, and how its code is run.
type readme struct {
	folder, language, file string
	// patient replaces the usual deadline, which a busy machine may miss.
	patient *strings.Replacer
	// prepare returns the command that runs file in a folder, and what must be in the
	// folder besides: links to folders, by name.
	prepare func(t *testing.T) (command []string, links map[string]string)
}

func readmes() []readme {
	return []readme{
		{"python", "python", "example.py", strings.NewReplacer(`Client("http://127.0.0.1:8080")`, `Client("http://127.0.0.1:8080", timeout=5)`, `127.0.0.1:1", `, `127.0.0.1:1", timeout=5, `), func(t *testing.T) ([]string, map[string]string) {
			links := map[string]string{}
			if packages := installedPython(t); packages != "" {
				links["headgate"] = filepath.Join(packages, "headgate") // wins over PYTHONPATH
			}
			return []string{program(t, "python3"), "example.py"}, links
		}},
		{"java", "java", "Example.java", strings.NewReplacer(`var gate = Headgate.at("http://127.0.0.1:8080")`, `var gate = Headgate.at("http://127.0.0.1:8080").timeout(java.time.Duration.ofSeconds(5))`, `127.0.0.1:1")`, `127.0.0.1:1").timeout(java.time.Duration.ofSeconds(5))`), func(t *testing.T) ([]string, map[string]string) {
			return []string{program(t, "java"), "-cp", builtJava(t, "main"), "Example.java"}, nil
		}},
		{"node", "js", "example.mjs", strings.NewReplacer(`Client("http://127.0.0.1:8080")`, `Client("http://127.0.0.1:8080", { timeoutMs: 5000 })`, `127.0.0.1:9", {`, `127.0.0.1:9", { timeoutMs: 5000,`), func(t *testing.T) ([]string, map[string]string) {
			links := map[string]string{"node_modules/headgate": filepath.Join(installedNode(t), "node_modules", "headgate")}
			for _, framework := range []string{"express", "fastify", "hono"} {
				links["node_modules/"+framework] = filepath.Join(nodeModules(t), "node_modules", framework)
			}
			return []string{program(t, "node"), "example.mjs"}, links
		}},
	}
}

// TestReadmes: the code blocks of each README run, and print what the page shows.
func TestReadmes(t *testing.T) {
	for _, r := range readmes() {
		t.Run(r.folder, func(t *testing.T) {
			t.Parallel()
			page, err := os.ReadFile("../" + r.folder + "/README.md")
			if err != nil {
				t.Fatal(err)
			}
			blocks := regexp.MustCompile("(?ms)^```"+r.language+"\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?").FindAllStringSubmatch(string(page), -1)
			if len(blocks) < 5 {
				t.Fatalf("%d blocks", len(blocks))
			}
			arguments, links := r.prepare(t)
			server := start(t, "127.0.0.1:0")
			source, err := filepath.Abs("../" + r.folder)
			if err != nil {
				t.Fatal(err)
			}
			for i, block := range blocks {
				folder := t.TempDir()
				code := strings.ReplaceAll(r.patient.Replace(block[1]), "127.0.0.1:8080", server.address)
				if err := os.WriteFile(filepath.Join(folder, r.file), []byte(code), 0o600); err != nil {
					t.Fatal(err)
				}
				for name, target := range links {
					link := filepath.Join(folder, name)
					if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o700), os.Symlink(target, link)); err != nil {
						t.Fatal(err)
					}
				}
				command := exec.CommandContext(t.Context(), arguments[0], arguments[1:]...)
				command.Dir = folder
				command.Env = append(os.Environ(), "PYTHONPATH="+source, "PYTHONDONTWRITEBYTECODE=1", "no_proxy=*", "NO_PROXY=*")
				out, err := command.CombinedOutput()
				if got := strings.ReplaceAll(string(out), server.address, "127.0.0.1:8080"); err != nil || got != block[2] {
					t.Errorf("block %d: %v\n%s\nthe page says\n%s", i+1, err, got, block[2])
				}
			}
		})
	}
}
