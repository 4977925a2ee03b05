package webhook_test

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/observe/webhook"
)

// snippet returns a block of docs/warnings.md.
func snippet(t *testing.T, language, with string) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/warnings.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(block[1], with) {
			return block[1]
		}
	}
	t.Fatalf("the page has no block of %s with %q", language, with)
	return ""
}

const (
	exampleSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	exampleBody   = `{"test": 2432232314}`
)

// exampleSignature returns the signature of a message m1 at 1614265330.
func exampleSignature(t *testing.T) string {
	t.Helper()
	secrets, err := webhook.ParseSecrets(exampleSecret)
	if err != nil {
		t.Fatal(err)
	}
	return webhook.Sign(secrets, "m1", time.Unix(1614265330, 0), []byte(exampleBody))
}

// The programs of docs/warnings.md that verify a signature do.
func TestVerifyingInPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	program := "import base64, hashlib, hmac\nsecret, id, timestamp = '" + exampleSecret + "', 'm1', '1614265330'\nbody = b'" + exampleBody + "'\n" +
		"for signature in ['v1,other " + exampleSignature(t) + "', 'v1,other']:\n" + indent(snippet(t, "python", "hmac.new")) + "    print(ok)\n"
	out, err := exec.CommandContext(t.Context(), python, "-c", program).CombinedOutput()
	if err != nil || string(out) != "True\nFalse\n" {
		t.Errorf("%v\n%s\n%s", err, program, out)
	}
}

func indent(text string) string {
	return regexp.MustCompile("(?m)^(.)").ReplaceAllString(text, "    $1")
}

func TestVerifyingInTheShell(t *testing.T) {
	for _, program := range []string{"sh", "xxd", "openssl", "base64"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "hook.secret"), []byte(exampleSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "sh", "-c", "id=m1 timestamp=1614265330 body='"+exampleBody+"'\n"+snippet(t, "sh", "openssl dgst"))
	command.Dir = folder
	out, err := command.CombinedOutput()
	if got := "v1," + strings.TrimSpace(string(out)); err != nil || got != exampleSignature(t) {
		t.Errorf("%v: %s, want %s", err, got, exampleSignature(t))
	}
}

// openssl makes a secret that is accepted, as the page says.
func TestMakingASecret(t *testing.T) {
	text := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	if got, err := webhook.ParseSecrets(text + "\n"); err != nil || len(got) != 1 || len(got[0]) != 32 {
		t.Errorf("%d secrets, %v", len(got), err)
	}
}
