package rules_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

var update = flag.Bool("update", false, "rewrite the expected messages in testdata/bad")

// eachBad calls each for every archive in testdata/bad: NAME.yaml, a rule file with one
// mistake, and after it NAME.txt, the expected messages with excerpts.
func eachBad(t testing.TB, each func(file string, a *txtar.Archive)) {
	t.Helper()
	files, err := filepath.Glob("testdata/bad/*.txtar")
	if err != nil || len(files) < 10 {
		t.Fatalf("found %d archives, %v", len(files), err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil || len(a.Files)%2 != 0 {
			t.Fatalf("%s: %v", file, err)
		}
		each(file, a)
	}
}

func TestBadFilesAreExplained(t *testing.T) {
	eachBad(t, func(file string, a *txtar.Archive) {
		for i := 0; i < len(a.Files); i += 2 {
			source, want := &a.Files[i], &a.Files[i+1]
			t.Run(strings.TrimSuffix(source.Name, ".yaml"), func(t *testing.T) {
				got := messagesOf(t, source.Name, source.Data)
				if *update {
					want.Data = []byte(got)
				}
				if diff := cmp.Diff(string(want.Data), got); diff != "" {
					t.Errorf("%s: -want +got:\n%s", file, diff)
				}
			})
		}
		if *update {
			if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// What an archive of text cannot hold.
func TestBadBytesAreExplained(t *testing.T) {
	for _, row := range []struct{ source, want string }{
		{"", "rules.yaml:1:1: the file has no rules; for a file without rules, write a domain and \"limits: []\"\n1 | \n  | ^\n"},
		{"domain: api\n# caf\xe9\nlimits: []\n", "rules.yaml:2:6: the file is not valid UTF-8 (byte 0xe9)\n2 | # caf\xc2\xb7\n  |      ^\n"},
	} {
		if got := messagesOf(t, "rules.yaml", []byte(row.source)); got != row.want {
			t.Errorf("%q: %q, want %q", row.source, got, row.want)
		}
	}
}

// messagesOf returns the messages about a rule file that must have some.
func messagesOf(t *testing.T, name string, source []byte) string {
	t.Helper()
	set, diagnostics := rulefile.Parse(rulefile.Source{Name: name, Data: source})
	if (set == nil) != diagnostic.HasErrors(diagnostics) {
		t.Errorf("a Ruleset is there: %v, with %v", set != nil, diagnostics)
	}
	if len(diagnostics) == 0 {
		t.Error("nothing was found wrong")
	}
	var b strings.Builder
	for _, d := range diagnostics {
		b.WriteString(d.String() + "\n" + diagnostic.Excerpt(source, d))
	}
	return b.String()
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestGoodFilesLoadWithoutWarnings(t *testing.T) {
	set, err := rulefile.Load("testdata/good")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range set.Warnings() {
		t.Error(w)
	}
	want := rules.Stats{Domains: 9, Rules: 70, Files: 9, Disabled: 1}
	if diff := cmp.Diff(want, set.Stats()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"api", "empty.example", "gateway", "gateway-envoy", "listed", "mixed", "outcomes", "shop", "storefront"}, set.Domains()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
