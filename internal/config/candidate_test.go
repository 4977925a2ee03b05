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

// The candidate can be a file or a list of files.
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
		{text: "candidate:", wrong: `"candidate" has no value`},
		{text: "candidate: rules-new/", want: config.Candidate{Rules: at("rules-new")}},
		{text: "candidate: [a.yaml, b/]", want: config.Candidate{Rules: at("a.yaml", "b")}},
		{text: "candidate: a.yaml", variable: "x.yaml,y", want: config.Candidate{Rules: []string{"x.yaml", "y"}}},
		{text: "candidate: {rules: a.yaml}", wrong: `candidate.rules is not a setting any more; name the files as candidate: [rules-new/]`},
		{text: "candidate: {max_keys: 5}", wrong: `candidate.max_keys is not a setting any more; leave it out`},
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
