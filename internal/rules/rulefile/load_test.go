package rulefile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// write puts files into a new folder: name, text, name, text.
func write(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		name := filepath.Join(dir, files[i])
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(files[i+1]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func rule(name string) string {
	return "domain: d\nlimits:\n  - {name: " + name + ", rate: 1/s, match: {path: /" + name + "}}\n"
}

func TestLoadReadsFolders(t *testing.T) {
	dir := write(t,
		"b.yaml", rule("b"), "a.yml", rule("a"), "sub/c.yaml", rule("c"),
		"a_test.yaml", "tests: []", ".hidden.yaml", "bad: [", "..data/a.yml", rule("a"), "notes.txt", "bad: [", "a.yaml.bak", "bad: [",
	)
	set, err := rulefile.Load(dir, filepath.Join(dir, "b.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range set.Rules() {
		names = append(names, r.Name)
	}
	if got := strings.Join(names, " "); got != "a b c" {
		t.Errorf("got the rules %s", got)
	}
	if got := set.Rules()[2].Position(); got != filepath.Join(dir, "sub/c.yaml")+":3:5" {
		t.Errorf("got the position %s", got)
	}
	if set.Stats() != (rules.Stats{Domains: 1, Rules: 3, Files: 3}) {
		t.Errorf("got %+v", set.Stats())
	}
}

// Kubernetes shows a ConfigMap as links through ..data, which it swaps.
func TestLoadFollowsAConfigMap(t *testing.T) {
	dir := write(t, "..2026_11_21/rules.yaml", rule("a"))
	if err := os.Symlink("..2026_11_21", filepath.Join(dir, "..data")); err != nil {
		t.Skip(err)
	}
	if err := os.Symlink(filepath.Join("..data", "rules.yaml"), filepath.Join(dir, "rules.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "loop")); err != nil {
		t.Fatal(err)
	}
	set, err := rulefile.Load(dir)
	if err != nil || len(set.Rules()) != 1 {
		t.Fatalf("got %v, %v", set, err)
	}
}

func TestLoadReportsAllFilesAtOnce(t *testing.T) {
	dir := write(t, "a.yaml", "domain: d\nlimts: []\n", "b.yaml", "domain: [\n", "c.yaml", rule("c"))
	_, err := rulefile.Load(dir, filepath.Join(dir, "missing.yaml"))
	var problems diagnostic.Problems
	if !errors.As(err, &problems) || len(problems) != 3 {
		t.Fatalf("got %v", err)
	}
	for i, want := range []string{"missing.yaml: cannot be read: ", "a.yaml:2:1: unknown key \"limts\"", "b.yaml:2:1: not valid YAML"} {
		if !strings.Contains(problems[i].String(), want) {
			t.Errorf("got %q, want %q in it", problems[i], want)
		}
	}
	if strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("not one line each:\n%v", err)
	}
}

func TestLoadWarns(t *testing.T) {
	dir := write(t, "readme.md", "")
	set, err := rulefile.Load(dir)
	if err != nil || len(set.Warnings()) != 1 || !strings.Contains(set.Warnings()[0].String(), "no rule files") {
		t.Errorf("an empty folder: %v, %v", set, err)
	}
	set, err = rulefile.Load()
	if err != nil || len(set.Warnings()) != 0 {
		t.Errorf("no paths: %v, %v", set, err)
	}
}

// TestRulesNamedAsTests: a file whose name is that of rule tests is not read for
// rules, and that is said if it has some.
func TestRulesNamedAsTests(t *testing.T) {
	dir := write(t, "a.yaml", rule("a"), "load_test.yaml", rule("b"), "envoy_test.yml", "domain: e\ndescriptors: []\n", "a_test.yaml", "tests:\n  - {name: limits}\n")
	for _, paths := range [][]string{{dir}, {filepath.Join(dir, "a.yaml"), filepath.Join(dir, "envoy_test.yml"), filepath.Join(dir, "load_test.yaml")}} {
		set, err := rulefile.Load(paths...)
		if err != nil || len(set.Rules()) != 1 || len(set.Warnings()) != 2 {
			t.Fatalf("%v, %v", set, err)
		}
		for i, name := range []string{"envoy_test.yml", "load_test.yaml"} {
			if got := set.Warnings()[i].String(); got != filepath.Join(dir, name)+": warning: the file has rules but is ignored: its name marks it as rule tests; rename it so that it does not end in _test.yaml" {
				t.Error(got)
			}
		}
	}
}

func TestLoadRefusesWhatIsNoFile(t *testing.T) {
	dir := write(t, "big.yaml", "# "+strings.Repeat("x", yamltext.MaxFileSize))
	if _, err := rulefile.Load(filepath.Join(dir, "big.yaml")); err == nil || !strings.Contains(err.Error(), "larger than 8 MiB") {
		t.Errorf("got %v", err)
	}
	if _, err := rulefile.Load(os.DevNull); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v", err)
	}
}

// The same name in two domains is fine, in one domain it is not, be it in two
// files.
func TestNamesAcrossFiles(t *testing.T) {
	source := func(file, domain string) rulefile.Source {
		return rulefile.Source{Name: file, Data: []byte("domain: " + domain + "\nlimits:\n  - {name: a, rate: 1/s}\n")}
	}
	if set, diagnostics := rulefile.Parse(source("1.yaml", "x"), source("2.yaml", "y")); set == nil {
		t.Error(diagnostic.Problems(diagnostics))
	}
	set, diagnostics := rulefile.Parse(source("1.yaml", "x"), source("2.yaml", "x"))
	if set != nil || len(diagnostics) != 1 || diagnostics[0].String() != `2.yaml:3:12: duplicate name "a" in domain "x": first in 1.yaml:3:5` {
		t.Errorf("got %v", diagnostics)
	}
}

// A file with thousands of mistakes is not answered by thousands of lines.
func TestProblemsAreCounted(t *testing.T) {
	src := "domain: d\nlimits:\n" + strings.Repeat("  - {name: a, rate: 1}\n", 5000)
	_, diagnostics := rulefile.Parse(rulefile.Source{Name: "f", Data: []byte(src)})
	last := diagnostics[len(diagnostics)-1]
	if len(diagnostics) != yamltext.MaxProblems+1 || !strings.Contains(last.Message, "more problems are not shown") || last.Severity != diagnostic.SeverityError {
		t.Errorf("%d diagnostics, the last %v", len(diagnostics), last)
	}
}

// TestLoadNamesWhatItLeavesOut: a file that is not read limits nothing.
func TestLoadNamesWhatItLeavesOut(t *testing.T) {
	mixed := write(t, "a.yaml", rule("a"), "b", rule("b"), "c.json", rule("c"), "README.md", "", ".d.yaml", rule("d"))
	set, err := rulefile.Load(mixed)
	if err != nil || len(set.Rules()) != 1 || len(set.Warnings()) != 1 || !strings.HasSuffix(set.Warnings()[0].Message, "are ignored: b, c.json") {
		t.Errorf("%v, %v", set.Warnings(), err)
	}
	others := write(t, "b", rule("b"), "c.YAML", rule("c"))
	if _, err := rulefile.Load(others); err == nil || !strings.Contains(err.Error(), "no rule files in this folder, only b, c.YAML") {
		t.Errorf("%v", err)
	}
}

// TestLoadAnyNameUnderCompat: as envoyproxy/ratelimit does.
func TestLoadAnyNameUnderCompat(t *testing.T) {
	dir := write(t, "a.yaml", rule("a"), "b", rule("b"), "c.json", rule("c"), ".d.yaml", rule("d"), "e.YAML", rule("e"),
		"f_test.yaml", "", "..data/g.yaml", rule("g"), ".git/h.yaml", rule("h"), "sub/i.conf", rule("i"))
	for _, tt := range []struct {
		options rulefile.Options
		want    int
		left    int // with a warning: .git, f_test.yaml
	}{{rulefile.Options{Compat: rules.CompatEnvoy}, 6, 2}, {rulefile.Options{Compat: rules.CompatEnvoy, IgnoreDotFiles: true}, 5, 1}} {
		if set, err := tt.options.Load(dir); err != nil || len(set.Rules()) != tt.want || len(set.Warnings()) != tt.left {
			t.Errorf("%+v: %v, %v", tt.options, set, err)
		}
	}
}

// A table or a list next to the rules that use it is not an ignored file, but one that no
// rule uses is.
func TestFilesThatRulesUseAreNotIgnored(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"rules.yaml": "domain: api\ndeny: {client_ip: [{file: bad.csv}]}\nlimits:\n" +
			"  - {name: a, key: \"header:X-Api-Key\", rate: {table: customers.csv, default: 2/minute}}\n",
		"customers.csv": "key,rate\nk1,5/minute\n",
		"bad.csv":       "192.0.2.1\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, err := rulefile.Options{}.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Warnings()) > 0 {
		t.Error(set.Warnings())
	}
	if err := os.WriteFile(filepath.Join(dir, "other.csv"), []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if set, err = (rulefile.Options{}).Load(dir); err != nil {
		t.Fatal(err)
	}
	if w := set.Warnings(); len(w) != 1 || w[0].Message != "files in this folder are ignored: other.csv" {
		t.Error(w)
	}
}
