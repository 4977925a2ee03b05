package rulefile_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// tree writes files below a new folder, each with the rules of a domain that is
// named after it, unless it says something else.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if text == "" {
			text = "domain: " + strings.NewReplacer("/", "-", ".", "-").Replace(name) + "\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 1}}]\n"
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// As the original that watches its root, rules are also read from what has the
// name of the folder and a dot in front.
func TestSiblings(t *testing.T) {
	root := tree(t, map[string]string{
		"config/y.yaml": "", "config.yaml": "", "config.d/x.yaml": "", "config.bak": "", "configs/z.yaml": "", "other.yaml": "",
		"config_test.yaml": "", "config.more_test.yaml": "tests: []\n", "away/w.yaml": "",
	})
	if err := os.Symlink(filepath.Join(root, "away"), filepath.Join(root, "config.link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "nowhere"), filepath.Join(root, "config.gone.yaml")); err != nil {
		t.Fatal(err)
	}
	alone := tree(t, map[string]string{"config.yaml": ""})
	for _, row := range []struct {
		options rulefile.Options
		path    string
		want    []string
	}{
		{rulefile.Options{}, root, []string{"config-y-yaml"}},
		{rulefile.Options{Siblings: true}, root, []string{"config-d-x-yaml", "config-y-yaml", "config-yaml"}},
		{rulefile.Options{Siblings: true, Compat: rules.CompatEnvoy}, root, []string{"config-bak", "config-d-x-yaml", "config-y-yaml", "config-yaml"}},
		{rulefile.Options{Siblings: true}, alone, []string{"config-yaml"}},
	} {
		set, err := row.options.Load(filepath.Join(row.path, "config"))
		if err != nil {
			t.Errorf("%+v: %v", row.options, err)
		} else if got := slices.Sorted(slices.Values(set.Domains())); !slices.Equal(got, row.want) {
			t.Errorf("%+v: %v, want %v", row.options, got, row.want)
		}
	}
	if _, err := (rulefile.Options{Siblings: true}).Load(filepath.Join(root, "nothing")); err == nil {
		t.Error("a missing folder without siblings is no error")
	}
}

// There is a warning about files that envoyproxy/ratelimit reads and Headgate ignores.
func TestWarnsOfWhatTheOriginalReads(t *testing.T) {
	files := map[string]string{
		"a.yaml": "", ".s/c.yaml": "", ".git/HEAD": "ref: x\n", "..2026/d.yaml": "", "load_test.yaml": "",
		"flow_test.yaml": "{domain: f, descriptors: []}\n", "real_test.yaml": "tests: []\n",
	}
	const dots, flow, load = ".s: files are ignored because the folder name starts with a dot, but envoyproxy/ratelimit reads them: c.yaml",
		"flow_test.yaml: the file is ignored: its name marks it as rule tests", "load_test.yaml: the file has rules"
	for _, row := range []struct {
		options rulefile.Options
		want    []string
	}{
		{rulefile.Options{}, []string{load}},
		{rulefile.Options{Compat: rules.CompatEnvoy}, []string{dots, flow, load}},
		{rulefile.Options{Compat: rules.CompatEnvoy, IgnoreDotFiles: true}, []string{flow, load}},
	} {
		root := tree(t, files)
		set, err := row.options.Load(root)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range set.Warnings() {
			got = append(got, strings.TrimPrefix(d.File, root+string(filepath.Separator))+": "+d.Message)
		}
		if len(got) != len(row.want) {
			t.Errorf("%+v: %q", row.options, got)
			continue
		}
		for i, want := range row.want {
			if !strings.HasPrefix(got[i], want) {
				t.Errorf("%+v: %q, want %q", row.options, got[i], want)
			}
		}
	}
}
