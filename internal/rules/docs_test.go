package rules_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/envoyform"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/rules/schema"
)

// The examples in the pages about rules are right.
func TestDocumentedExamplesParse(t *testing.T) {
	for page, least := range map[string]int{"rules/rules.md": 4, "connect/envoy-rules.md": 2, "reference/headers.md": 1, "more/concurrency.md": 1, "more/charge-on.md": 3, "more/outcomes.md": 5, "connect/from-nginx.md": 4, "more/queue.md": 1, "watch/keys.md": 1} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
		if len(blocks) < least {
			t.Fatalf("%s: found %d examples", page, len(blocks))
		}
		for _, block := range blocks {
			if strings.HasPrefix(block[1], "# headgate.yaml\n") {
				continue // settings, no rules
			}
			src := wholeFile(block[1])
			if _, diagnostics := rulefile.Parse(rulefile.Source{Name: page, Data: []byte(src)}); len(diagnostics) > 0 {
				t.Errorf("%v\n%s", diagnostic.Problems(diagnostics), src)
			}
		}
	}
}

// wholeFile puts what is missing around an example.
func wholeFile(src string) string {
	const head = "domain: d\nlimits:\n"
	indented := "    " + strings.ReplaceAll(strings.TrimSpace(src), "\n", "\n    ") + "\n"
	switch {
	case strings.HasPrefix(src, "domain:"):
		return src
	case strings.HasPrefix(src, "- "):
		return head + indented
	}
	if !strings.HasPrefix(src, "rate:") {
		indented += "    rate: 1/s\n"
	}
	return head + "  - name: r\n" + indented
}

// Every key of the descriptor form is in its page, and in one that is read.
func TestDescriptorKeysAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/connect/envoy-rules.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range slices.Concat(form.Keys(rulefile.Document().Rows), form.Keys(envoyform.Mappings()[0].Rows), form.Keys(envoyform.Mappings()[1].Rows)) {
		if !strings.Contains(string(page), "`"+key+"`") {
			t.Errorf("%s is not documented", key)
		}
	}
}

// The tables of keys in the docs are made of those that the loader reads by.
func TestTablesOfKeysAreCurrent(t *testing.T) {
	tables := map[string][]form.Row{"document": rulefile.Document().Rows}
	for _, m := range schema.Mappings() {
		tables[m.Def] = m.Rows
		for _, row := range m.Rows {
			if m.Def == "onLimit" && slices.Equal(row.Only, []string{"queue"}) {
				row.Only = nil // the page is about the action
				tables["queue"] = append(tables["queue"], row)
			}
		}
	}
	found, marked := 0, regexp.MustCompile("(?s)(<!-- keys of ([A-Za-z]+) -->\n).*?(<!-- end -->)")
	for _, page := range []string{"rules/rules.md", "more/offenders.md", "more/charge-on.md", "more/queue.md", "connect/envoy-rules.md"} {
		path := "../../docs/" + page
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, path, marked.ReplaceAllStringFunc(string(text), func(block string) string {
			part := marked.FindStringSubmatch(block)
			if found++; tables[part[2]] == nil {
				t.Errorf("%s: no mapping is called %s", page, part[2])
			}
			return part[1] + form.Table(tables[part[2]], page) + part[3]
		}))
	}
	if found < 6 {
		t.Errorf("found %d tables", found)
	}
}

// The example of which wildcard wins is right.
func TestDocumentedWildcardsWin(t *testing.T) {
	page, err := os.ReadFile("../../docs/connect/envoy-rules.md")
	if err != nil {
		t.Fatal(err)
	}
	var cells [2][]string
	for i, line := range regexp.MustCompile(`(?m)^\| rules for .*\n\|---.*\n(\| .*)$`).FindStringSubmatch(string(page)) {
		cells[i] = strings.Split(strings.ReplaceAll(strings.Split(line, "\n")[0], "`", ""), " | ")
	}
	src := "domain: d\ndescriptors:\n"
	for value := range strings.SplitSeq(strings.TrimPrefix(cells[1][0], "| "), ", ") {
		src += "  - {key: path, rate_limit: {name: \"" + value + "\", rate: 1/s}"
		if value != "none" {
			src += ", value: \"" + value + "\""
		}
		src += "}\n"
	}
	set := parse(t, src)
	for i, path := range cells[0][1:] {
		path, want := strings.Trim(path, " |"), strings.Trim(cells[1][i+1], " |")
		var m rules.Matches
		set.MatchDescriptor("d", []rules.Entry{{"path", path}}, &m)
		if len(m.Checks) != 1 || m.Checks[0].Rule.LimitName != want {
			t.Errorf("%s: got %s, want %s", path, checks(&m), want)
		}
	}
}

// The rows of the table of paths are right.
func TestDocumentedPathsMatch(t *testing.T) {
	page, err := os.ReadFile("../../docs/rules/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `(/[^`]*)` \\| (.*?) \\| (.*?) \\|$").FindAllStringSubmatch(string(page), -1)
	if len(rows) < 6 {
		t.Fatalf("found %d rows", len(rows))
	}
	paths := regexp.MustCompile("`(/[^`]*)`")
	for _, row := range rows {
		set := parse(t, "domain: d\nlimits:\n  - {name: r, rate: 1/s, match: {path: "+row[1]+"}}\n")
		for cell, want := range map[string]bool{row[2]: true, row[3]: false} {
			for _, path := range paths.FindAllStringSubmatch(cell, -1) {
				if got := matched(set, "d", request(t, "path="+path[1])) == "r"; got != want {
					t.Errorf("%s matches %s: %v", row[1], path[1], got)
				}
			}
		}
	}
}
