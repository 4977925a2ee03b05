package rules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/request/reading"
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
	set, err := Load(dir, filepath.Join(dir, "b.yaml"))
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
	if set.Stats() != (Stats{Domains: 1, Rules: 3, Files: 3}) {
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
	set, err := Load(dir)
	if err != nil || len(set.Rules()) != 1 {
		t.Fatalf("got %v, %v", set, err)
	}
}

func TestLoadReportsAllFilesAtOnce(t *testing.T) {
	dir := write(t, "a.yaml", "domain: d\nlimts: []\n", "b.yaml", "domain: [\n", "c.yaml", rule("c"))
	_, err := Load(dir, filepath.Join(dir, "missing.yaml"))
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
	set, err := Load(dir)
	if err != nil || len(set.Warnings()) != 1 || !strings.Contains(set.Warnings()[0].String(), "no rule files") {
		t.Errorf("an empty folder: %v, %v", set, err)
	}
	set, err = Load()
	if err != nil || len(set.Warnings()) != 0 {
		t.Errorf("no paths: %v, %v", set, err)
	}
}

// TestRulesNamedAsTests: a file whose name is that of rule tests is not read for
// rules, and that is said if it has some.
func TestRulesNamedAsTests(t *testing.T) {
	dir := write(t, "a.yaml", rule("a"), "load_test.yaml", rule("b"), "envoy_test.yml", "domain: e\ndescriptors: []\n", "a_test.yaml", "tests:\n  - {name: limits}\n")
	for _, paths := range [][]string{{dir}, {filepath.Join(dir, "a.yaml"), filepath.Join(dir, "envoy_test.yml"), filepath.Join(dir, "load_test.yaml")}} {
		set, err := Load(paths...)
		if err != nil || len(set.Rules()) != 1 || len(set.Warnings()) != 2 {
			t.Fatalf("%v, %v", set, err)
		}
		for i, name := range []string{"envoy_test.yml", "load_test.yaml"} {
			if got := set.Warnings()[i].String(); got != filepath.Join(dir, name)+": warning: the file has rules, but is not read as such: its name is that of rule tests; call it something that does not end in _test.yaml" {
				t.Error(got)
			}
		}
	}
}

func TestLoadRefusesWhatIsNoFile(t *testing.T) {
	dir := write(t, "big.yaml", "# "+strings.Repeat("x", yamltext.MaxFileSize))
	if _, err := Load(filepath.Join(dir, "big.yaml")); err == nil || !strings.Contains(err.Error(), "larger than 8 MiB") {
		t.Errorf("got %v", err)
	}
	if _, err := Load(os.DevNull); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v", err)
	}
}

// The same name in two domains is fine, in one domain it is not, be it in two
// files.
func TestNamesAcrossFiles(t *testing.T) {
	source := func(file, domain string) Source {
		return Source{Name: file, Data: []byte("domain: " + domain + "\nlimits:\n  - {name: a, rate: 1/s}\n")}
	}
	if set, diagnostics := Parse(source("1.yaml", "x"), source("2.yaml", "y")); set == nil {
		t.Error(diagnostic.Problems(diagnostics))
	}
	set, diagnostics := Parse(source("1.yaml", "x"), source("2.yaml", "x"))
	if set != nil || len(diagnostics) != 1 || diagnostics[0].String() != `2.yaml:3:12: the name "a" is taken in the domain "x": 1.yaml:3:5` {
		t.Errorf("got %v", diagnostics)
	}
}

// A file with thousands of mistakes is not answered by thousands of lines.
func TestProblemsAreCounted(t *testing.T) {
	src := "domain: d\nlimits:\n" + strings.Repeat("  - {name: a, rate: 1}\n", 5000)
	_, diagnostics := Parse(Source{Name: "f", Data: []byte(src)})
	last := diagnostics[len(diagnostics)-1]
	if len(diagnostics) != yamltext.MaxProblems+1 || !strings.Contains(last.Message, "more problems are not shown") || last.Severity != diagnostic.SeverityError {
		t.Errorf("%d diagnostics, the last %v", len(diagnostics), last)
	}
}

// Aliases and merges mean what YAML says.
func TestAliasesAndMerges(t *testing.T) {
	set := parse(t, `
x-base: &base {rate: 5/minute, key: client_ip, mode: shadow}
x-more: &more {rate: 6/minute, cost: 3}
domain: d
limits:
  - {<<: *base, name: a}
  - {name: b, <<: [*base, *more]}
  - {name: c, <<: *base, rate: 7/minute, mode: enforce, match: &m {path: /c}}
  - {name: d, rate: 8/minute, match: *m}
`)
	for i, want := range []string{"a 5 shadow 1", "b 5 shadow 3", "c 7 enforce 1", "d 8 enforce 1"} {
		r := set.Rules()[i]
		if got := fmt.Sprintf("%s %d %s %d", r.Name, r.Limit.N(), r.Mode, r.Cost); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := matched(set, "d", request(t, "path=/c")); got != "a b c d" {
		t.Errorf("matched %s", got)
	}
}

// Whatever a file holds, it gives rules or reasons, and rules that can be
// matched and enforced.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/good/*.yaml", "testdata/bad/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			src, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(src)
		}
	}
	req := request(f, "method=GET path=//a/../v1/x/ host=A.example.com:1 client_ip=10.1.2.3 header:X-Api-Key=k tenant=acme")
	f.Fuzz(func(t *testing.T, src []byte) {
		set, diagnostics := Parse(Source{Name: "f", Data: src})
		if (set == nil) != hasErrors(diagnostics) {
			t.Fatalf("%v beside %v", set, diagnostics)
		}
		for _, d := range diagnostics {
			if d.Message == "" || d.Line < 0 || d.Column < 0 || strings.Contains(d.String(), "\n") {
				t.Errorf("%#v", d)
			}
			_ = diagnostic.Excerpt(src, d)
		}
		if set == nil {
			return
		}
		for _, r := range set.Rules() {
			if err := r.Limit.Validate(); err != nil || r.Cost < 0 || r.Name == "" {
				t.Errorf("%s: %v", r.Position(), err)
			}
		}
		var m Matches
		for _, name := range set.Domains() {
			set.Match(name, req, &m)
			for _, c := range m.Checks {
				if _, ok := SplitKey(c.Key); !ok {
					t.Errorf("the key %q cannot be split", c.Key)
				}
			}
		}
	})
}

// FuzzMatchPath compares the walk over a path with a plain recursion.
func FuzzMatchPath(f *testing.F) {
	f.Add("/a/**/b/*c*", "/a/x/b/ccc")
	f.Add("/**", "//a/../b/")
	f.Add("/**/a/**/b/*/c", "/a/b/b/c/b/d/c")
	f.Add("/A/*b/**", "/%41/..%2fa/XB/..;/c")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		p, err := parsePath(pattern)
		if err != nil || len(p.segments) > 8 {
			return
		}
		x := &index{}
		n := x.pathNode(p.posting().text)
		n.below = []int32{1}
		var s reading.Set
		s.Read(path)
		for i, text := range s.All() {
			if strings.Count(text, "/") > 12 {
				continue
			}
			var steps []string
			if text != "/" {
				steps = strings.Split(text[1:], "/")
			}
			got := p.match(text)
			if want := slowMatch(p.segments, steps); got != want {
				t.Errorf("%q matches %q: %v, want %v", pattern, text, got, want)
			}
			if folded := s.Folded(i); got && !p.folded().match(folded) {
				t.Errorf("%q matches %q, but not %q", pattern, text, folded)
			} else if got && len(x.paths.collect(folded[1:], nil)) == 0 {
				t.Errorf("%q matches %q but the index does not find it", pattern, text)
			}
		}
	})
}

func slowMatch(segments []segment, steps []string) bool {
	if len(segments) == 0 {
		return len(steps) == 0
	}
	if segments[0].kind == deepSegment {
		for i := range len(steps) + 1 {
			if slowMatch(segments[1:], steps[i:]) {
				return true
			}
		}
		return false
	}
	return len(steps) > 0 && segments[0].matches(steps[0]) && slowMatch(segments[1:], steps[1:])
}

func BenchmarkParse(b *testing.B) {
	var src strings.Builder
	src.WriteString("domain: d\nlimits:\n")
	const n = 10_000
	for i := range n {
		fmt.Fprintf(&src, "  - name: r%d\n    match: {method: POST, path: /v1/tenant-%d/**}\n    key: [client_ip]\n    rate: 5/minute\n", i, i)
	}
	b.ReportAllocs()
	for b.Loop() {
		if set, diagnostics := Parse(Source{Name: "f", Data: []byte(src.String())}); set == nil || set.Stats().Rules != n {
			b.Fatal(diagnostic.Problems(diagnostics))
		}
	}
}

// TestLoadNamesWhatItLeavesOut: a file that is not read limits nothing.
func TestLoadNamesWhatItLeavesOut(t *testing.T) {
	mixed := write(t, "a.yaml", rule("a"), "b", rule("b"), "c.json", rule("c"), "README.md", "", ".d.yaml", rule("d"))
	set, err := Load(mixed)
	if err != nil || len(set.Rules()) != 1 || len(set.Warnings()) != 1 || !strings.HasSuffix(set.Warnings()[0].Message, "are not read: b, c.json") {
		t.Errorf("%v, %v", set.Warnings(), err)
	}
	others := write(t, "b", rule("b"), "c.YAML", rule("c"))
	if _, err := Load(others); err == nil || !strings.Contains(err.Error(), "no rule files, but others: b, c.YAML") {
		t.Errorf("%v", err)
	}
}

// TestLoadAnyNameUnderCompat: as envoyproxy/ratelimit does.
func TestLoadAnyNameUnderCompat(t *testing.T) {
	dir := write(t, "a.yaml", rule("a"), "b", rule("b"), "c.json", rule("c"), ".d.yaml", rule("d"), "e.YAML", rule("e"),
		"f_test.yaml", "", "..data/g.yaml", rule("g"), ".git/h.yaml", rule("h"), "sub/i.conf", rule("i"))
	for _, tt := range []struct {
		options Options
		want    int
		left    int // what a warning tells of: .git, f_test.yaml
	}{{Options{Compat: CompatEnvoy}, 6, 2}, {Options{Compat: CompatEnvoy, IgnoreDotFiles: true}, 5, 1}} {
		if set, err := tt.options.Load(dir); err != nil || len(set.Rules()) != tt.want || len(set.Warnings()) != tt.left {
			t.Errorf("%+v: %v, %v", tt.options, set, err)
		}
	}
}
