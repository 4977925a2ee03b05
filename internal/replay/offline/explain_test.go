package offline_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/replay/offline"
)

// Set and the like explain refusals.
func TestExplainRequestRefuses(t *testing.T) {
	var q offline.ExplainRequest
	if err := q.Set("header:x-plan", "free"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"address":    {q.Set("client_ip", "fe80::1%eth0"), "is not an IP address"},
		"twice":      {q.Set("header:X-PLAN", "paid"), "duplicate header:X-Plan"},
		"name":       {q.Set("headers:x", ""), "did you mean"},
		"path":       {q.SetPath("/%zz"), "invalid URL escape"},
		"descriptor": {q.AddDescriptor(""), "is empty"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
}

// Wrong files have no names to complete.
func TestNamesOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	const right = "domain: a\nlimits: [{name: x, rate: 1/s}]\n---\ndomain: b\nlimits: [{name: y, rate: 1/s}]\n"
	for _, c := range []struct{ text, domain, want string }{
		{right, "", "a b: x y"},
		{right, "b", "a b: y"},
		{"domain: a\nlimits: [{name: x}]\n", "", ":"},
		{"domain: a\nlimits: [{name: x}]\n", "a", ":"},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		n := offline.NamesOf(c.domain, file)
		if got := strings.TrimSpace(strings.Join(n.Domains, " ") + ": " + strings.Join(n.Rules, " ")); got != c.want {
			t.Errorf("domain %q: got %q, want %q", c.domain, got, c.want)
		}
	}
}
