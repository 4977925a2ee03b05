package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

// The candidate can be a file, a list of files or a mapping.
func TestCandidate(t *testing.T) {
	dir := t.TempDir()
	at := func(names ...string) (paths []string) {
		for _, n := range names {
			paths = append(paths, filepath.Join(dir, n))
		}
		return paths
	}
	for _, tt := range []struct {
		text, variable string
		want           config.Candidate
		wrong          string
	}{
		{text: "rules: [rules/]"},
		{text: "candidate:"},
		{text: "candidate: rules-new/", want: config.Candidate{Rules: at("rules-new")}},
		{text: "candidate: [a.yaml, b/]", want: config.Candidate{Rules: at("a.yaml", "b")}},
		{text: "candidate: {rules: [a.yaml], max_keys: 50_000}", want: config.Candidate{Rules: at("a.yaml"), MaxKeys: 50_000}},
		{text: "candidate: {rules: a.yaml}", variable: "x.yaml,y", want: config.Candidate{Rules: []string{"x.yaml", "y"}}},
		{text: "candidate: {rule: a.yaml}", wrong: `unknown key "rule" in candidate, did you mean "rules"?`},
		{text: "candidate: {max_keys: 0}", wrong: `"0" is not a whole number from 1`},
	} {
		file := filepath.Join(dir, "headgate.yaml")
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		environment := func(name string) (string, bool) {
			if name != "HEADGATE_CANDIDATE" {
				return "", false
			}
			return tt.variable, true
		}
		c, err := config.Load(config.Sources{Doors: app.Sections(), File: file, Environment: environment})
		switch {
		case tt.wrong != "":
			if err == nil || !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%s: %v, want %q", tt.text, err, tt.wrong)
			}
		case err != nil:
			t.Errorf("%s: %v", tt.text, err)
		default:
			if diff := cmp.Diff(tt.want, c.Candidate); diff != "" {
				t.Errorf("%s: %s", tt.text, diff)
			}
		}
	}
}
