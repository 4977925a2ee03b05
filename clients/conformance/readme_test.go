package conformance

import (
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
	// command prepares a folder with the code in file, and returns what runs it.
	command func(t *testing.T, folder string) []string
}

func readmes() []readme {
	return []readme{
		{"python", "python", "example.py", strings.NewReplacer(`Client("http://127.0.0.1:8080")`, `Client("http://127.0.0.1:8080", timeout=5)`), func(t *testing.T, _ string) []string { return []string{program(t, "python3"), "example.py"} }},
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
				arguments := r.command(t, folder)
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
