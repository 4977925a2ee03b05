package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/app"
)

// What Set and its kin refuse, they refuse with words.
func TestExplainRequestRefuses(t *testing.T) {
	var q app.ExplainRequest
	if err := q.Set("header:x-plan", "free"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"address":    {q.Set("client_ip", "fe80::1%eth0"), "is not an IP address"},
		"twice":      {q.Set("header:X-PLAN", "paid"), "header:X-Plan is given twice"},
		"name":       {q.Set("headers:x", ""), "did you mean"},
		"path":       {q.SetPath("/%zz"), "invalid URL escape"},
		"descriptor": {q.AddDescriptor(""), "is empty"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
}

// Of files that are wrong there are no names to complete.
func TestNamesOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	for text, want := range map[string]string{
		"domain: a\nlimits: [{name: x, rate: 1/s}]\n---\ndomain: b\nlimits: [{name: y, rate: 1/s}]\n": "a b: x y",
		"domain: a\nlimits: [{name: x}]\n": ":",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		n := app.NamesOf("", file)
		if got := strings.TrimSpace(strings.Join(n.Domains, " ") + ": " + strings.Join(n.Rules, " ")); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if n := app.NamesOf("b", file); n.Rules != nil {
		t.Errorf("%v", n)
	}
}
