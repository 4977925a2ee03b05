package rulefile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// What the documents of a file have in common: a domain, a list of rules, keys of the
// user's own, and which of them count.
func TestDocuments(t *testing.T) {
	t.Parallel()
	const rule, tree = "limits: [{name: a, rate: 1/s}]\n", "descriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n"
	const none = "the file has no rules"
	for _, row := range []struct {
		src          string
		compat       rules.Compat
		rules        int
		said, domain string // all that is said, and the domains
	}{
		{"domain: d\n" + rule, rules.CompatNone, 1, "", "d"},
		{"domain: d\n" + rule + tree, rules.CompatNone, 2, "", "d"},
		{"domain: d\nlimits: []\n", rules.CompatNone, 0, "", "d"},
		{"domain: d\ndescriptors: []\n", rules.CompatNone, 0, "", "d"},
		{"domain: d\n", rules.CompatNone, -1, none, ""},
		{"domain: d\nlimits:\n", rules.CompatNone, -1, `"limits" has no value`, ""},
		{"domain: d\nlimts: []\n", rules.CompatNone, -1, `unknown key "limts" in a rule file, did you mean "limits"?`, ""},
		{"", rules.CompatNone, -1, none, ""},
		{"# nothing\n---\n~\n", rules.CompatNone, -1, none, ""},
		{"~\n---\ndomain: d\n" + rule, rules.CompatNone, 1, "", "d"},
		{"domain: d\n" + rule + "---\ndomain: e\n", rules.CompatNone, 1, "", "d e"},
		{"domain: d\n" + rule + "---\ndomain: e\n" + rule, rules.CompatNone, 2, "", "d e"},
		{"x-own: &x {rate: 1/s}\ndomain: d\nlimits: [{name: a, <<: *x}]\n", rules.CompatNone, 1, "", "d"},
		{"own: 1\ndomain: d\n" + rule, rules.CompatNone, -1, `unknown key "own"`, ""},
		{rule, rules.CompatNone, -1, `"domain" is missing`, ""},
		{"domain:\n" + rule, rules.CompatNone, -1, `"domain" has no value`, ""},
		{"domain: 5\n" + rule, rules.CompatNone, -1, `"domain" must be text, not a number`, ""},
		{"domain: 5\n" + tree, rules.CompatEnvoy, 1, "", "5"},
		{"domain: 5\n" + tree, rules.CompatNone, -1, `"domain" must be text, not a number`, ""},
		{"domain: true\n" + tree, rules.CompatEnvoy, -1, `"domain" must be text, not true or false`, ""},
		{"domain: 5\n" + rule, rules.CompatEnvoy, -1, `"domain" must be text, not a number`, ""},
		{"[1]\n", rules.CompatNone, -1, "a rule file must be a mapping (key: value), not a list", ""},
		{"text\n", rules.CompatNone, -1, "a rule file must be a mapping (key: value), not text", ""},
		{"domain: d\ndomain: e\n" + rule, rules.CompatNone, -1, `duplicate key "domain", first on line 1`, ""},
		{"domain: d\ndomain: e\n" + rule, rules.CompatEnvoy, -1, `duplicate key "domain", first on line 1`, ""},
		{"domain: d\ndomain: e\n" + tree, rules.CompatEnvoy, 1, `duplicate key "domain": the one on line 1 is ignored`, "e"},
		{"compat: envoy\ndomain: d\ndomain: e\n" + tree, rules.CompatNone, 1, `duplicate key "domain": the one on line 2 is ignored`, "e"},
		{"compat: none\ndomain: d\ndomain: e\n" + tree, rules.CompatEnvoy, -1, `duplicate key "domain", first on line 2`, ""},
		{"domain: d\n" + tree + "---\ndomain: e\n" + tree, rules.CompatEnvoy, 1, "reads only the first document of a file", "d"},
		{"domain: d\n" + tree + "---\ndomain: e\n" + tree, rules.CompatNone, 2, "", "d e"},
		{"domain: d\n" + tree + "---\ndomain: e\n" + rule, rules.CompatEnvoy, 2, "", "d e"},
	} {
		set, diagnostics := rulefile.Options{Compat: row.compat}.Parse(rulefile.Source{Name: "f", Data: []byte(row.src)})
		var said []string
		for _, d := range diagnostics {
			said = append(said, d.Message+d.Hint)
		}
		got := -1
		if set != nil {
			got = len(set.Rules())
			if domains := strings.Join(set.Domains(), " "); domains != row.domain {
				t.Errorf("%q, compat %s: the domains %s, want %s", row.src, row.compat, domains, row.domain)
			}
		}
		text := strings.Join(said, "\n")
		if got != row.rules || len(said) > 1 || (row.said == "") != (text == "") || !strings.Contains(text, row.said) {
			t.Errorf("%q, compat %s: %d rules, %q; want %d, %q", row.src, row.compat, got, text, row.rules, row.said)
		}
	}
}

// Folders may lie in folders, so deep and no deeper.
func TestFoldersAreBounded(t *testing.T) {
	t.Parallel()
	for depth, want := range map[int]string{1: "", 16: "", 17: "folders are nested too deeply", 20: "folders are nested too deeply"} {
		dir := write(t, strings.Repeat("f/", depth)+"a.yaml", rule("a"))
		set, err := rulefile.Load(dir)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || err == nil && len(set.Rules()) != 1 {
			t.Errorf("%d folders: %v, want %q", depth, err, want)
		}
	}
}

// Of files that are not read a few are named, and the others counted.
func TestFilesThatAreLeftOut(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{1: "f0", 5: "f0, f1, f2, f3, f4", 6: "f0, f1, f2, f3, f4 and 1 more", 9: "f0, f1, f2, f3, f4 and 4 more"} {
		files := []string{"a.yaml", rule("a"), "notes.md", "", "notes.txt", ""}
		for i := range n {
			files = append(files, fmt.Sprintf("f%d", i), "")
		}
		dir := write(t, files...)
		if err := os.Symlink(filepath.Join(dir, "nowhere"), filepath.Join(dir, "gone")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(os.DevNull, filepath.Join(dir, "device")); err != nil {
			t.Fatal(err)
		}
		set, err := rulefile.Load(dir)
		if err != nil || len(set.Warnings()) != 1 || !strings.HasSuffix(set.Warnings()[0].Message, "are ignored: "+want) {
			t.Errorf("%d files: %v, %v, want %s", n, set.Warnings(), err, want)
		}
	}
}

// A link to nothing, or to what is no file, is an error where it would be rules, and
// nothing where it would not.
func TestLinksThatAreNoFiles(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"gone.yaml": "cannot be read: no such file", "device.yml": "cannot be read: not a regular file", "folder.yaml": "", "gone_test.yaml": "", "device_test.yaml": "",
	} {
		dir := write(t, "a.yaml", rule("a"), "sub/b.txt", "")
		target := map[byte]string{'g': filepath.Join(dir, "nowhere"), 'd': os.DevNull, 'f': filepath.Join(dir, "sub")}[name[0]]
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		set, err := rulefile.Load(dir)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), name+": "+want) || err == nil && len(set.Warnings()) > 0 {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// There is a warning about a file with rules that is named like rule tests, even if it
// is named directly, unless it is larger than any rule file.
func TestTestsThatAreRules(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		text  string
		warns bool
	}{
		{rule("a"), true},
		{"descriptors: []\n", true},
		{"tests: []\n", false},
		{"", false},
		{"  limits: []\n", false},
		{"#limits:\nlimits :", false},
		{"limits: []\n" + strings.Repeat("#", yamltext.MaxFileSize-11), true},
		{"limits: []\n" + strings.Repeat("#", yamltext.MaxFileSize-10), false},
	} {
		dir := write(t, "a_test.yaml", row.text, "b.yaml", rule("b"))
		for _, paths := range [][]string{{dir}, {filepath.Join(dir, "b.yaml"), filepath.Join(dir, "a_test.yaml")}} {
			set, err := rulefile.Load(paths...)
			if err != nil || len(set.Rules()) != 1 || (len(set.Warnings()) > 0) != row.warns {
				t.Errorf("%.30q: %v, %v, want a warning: %v", row.text, set.Warnings(), err, row.warns)
			}
		}
	}
}

// Rule tests are found by their names in folders, and nothing else is taken for them.
func TestFindTests(t *testing.T) {
	t.Parallel()
	dir := write(t, "a_test.yaml", "1", "b.yaml", rule("b"), "sub/c_test.yml", "2", ".hidden_test.yaml", "3", ".git/d_test.yaml", "4", "e_test.json", "5")
	for _, row := range []struct {
		paths []string
		want  string
		said  string
	}{
		{[]string{""}, "a_test.yaml sub/c_test.yml", ""},
		{[]string{"sub", "a_test.yaml", "a_test.yaml"}, "sub/c_test.yml a_test.yaml", ""},
		{[]string{"b.yaml"}, "", "not a rule test file"},
		{[]string{"nowhere"}, "", "cannot be read"},
	} {
		var paths []string
		for _, path := range row.paths {
			paths = append(paths, filepath.Join(dir, path))
		}
		sources, problems := rulefile.FindTests(paths...)
		var names []string
		for _, s := range sources {
			names = append(names, strings.TrimPrefix(s.Name, dir+string(filepath.Separator)))
		}
		said := ""
		for _, p := range problems {
			said += p.Message
		}
		if strings.Join(names, " ") != row.want || (said == "") != (row.said == "") || !strings.Contains(said, row.said) {
			t.Errorf("%v: %v, %s; want %s, %s", row.paths, names, said, row.want, row.said)
		}
	}
}
