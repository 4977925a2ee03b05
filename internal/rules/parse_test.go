package rules_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

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
	files, err := filepath.Glob("testdata/good/*.yaml")
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
	eachBad(f, func(_ string, a *txtar.Archive) {
		for i := 0; i < len(a.Files); i += 2 {
			f.Add(a.Files[i].Data)
		}
	})
	req := request(f, "method=GET path=//a/../v1/x/ host=A.example.com:1 client_ip=10.1.2.3 header:X-Api-Key=k tenant=acme")
	f.Fuzz(func(t *testing.T, src []byte) {
		set, diagnostics := rulefile.Parse(rulefile.Source{Name: "f", Data: src})
		if (set == nil) != diagnostic.HasErrors(diagnostics) {
			t.Fatalf("%v with %v", set, diagnostics)
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
		var m rules.Matches
		for _, name := range set.Domains() {
			set.Match(name, req, &m)
			for _, c := range m.Checks {
				if _, ok := rules.SplitKey(c.Key); !ok {
					t.Errorf("the key %q cannot be split", c.Key)
				}
			}
		}
	})
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
		if set, diagnostics := rulefile.Parse(rulefile.Source{Name: "f", Data: []byte(src.String())}); set == nil || set.Stats().Rules != n {
			b.Fatal(diagnostic.Problems(diagnostics))
		}
	}
}
