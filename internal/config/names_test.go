package config_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	diff "github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

var update = flag.Bool("update", false, "rewrite testdata/settings.txt, testdata/defaults.txt and the tables of settings in docs/")

// TestSettingsAreAsPromised: testdata/settings.txt lists the names of all settings. A
// line that is taken away breaks configurations; see docs/start/install.md.
func TestSettingsAreAsPromised(t *testing.T) {
	names := config.Settings(app.Sections())
	slices.Sort(names)
	names = slices.Compact(names)
	const file = "testdata/settings.txt"
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(names, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := diff.Diff(strings.Fields(string(text)), names); d != "" {
		t.Errorf("if this is meant, run this test with -update, and say so in CHANGELOG.md:\n%s", d)
	}
}

// TestDefaultsAreAsPromised: testdata/defaults.txt is the configuration without any
// settings. A default that changes changes what a server does after an upgrade.
func TestDefaultsAreAsPromised(t *testing.T) {
	c, err := config.Load(config.Sources{Doors: app.Sections(), NoFile: true, Environment: none})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	for _, door := range app.Sections() {
		text = fmt.Appendf(text, "\n%s %s", cmp.Or(door.Key, "listen."+door.Name), door.Default)
	}
	const file = "testdata/defaults.txt"
	if *update {
		if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	promised, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := diff.Diff(strings.Split(strings.TrimSpace(string(promised)), "\n"), strings.Split(string(text), "\n")); d != "" {
		t.Errorf("if this is meant, run this test with -update, and say so in CHANGELOG.md:\n%s", d)
	}
}

// TestTablesOfSettings: docs/reference/settings.md says what the code says of each setting, and so
// do other pages of some. A table begins with a comment that has the beginnings of the keys that it
// is of.
func TestTablesOfSettings(t *testing.T) {
	const reference = "../../docs/reference/settings.md"
	pages, err := filepath.Glob("../../docs/*/*.md")
	if err != nil || !slices.Contains(pages, reference) {
		t.Fatal(pages, err)
	}
	rows := describedSettings(t)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		want, tables := withTables(string(text), page, rows)
		for _, row := range rows {
			if page == reference && tables[row.Key] != 1 {
				t.Errorf("%d tables have %s", tables[row.Key], row.Key)
			}
		}
		switch {
		case want == string(text):
		case *update:
			if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s is not what the settings say: go test ./internal/config -run '^TestTablesOfSettings$' -update", page)
		}
	}
}

// withTables returns the text of a page with its tables of settings, and how many have each key.
func withTables(text, page string, rows []config.Row) (string, map[string]int) {
	tables := map[string]int{}
	folder, name := filepath.Base(filepath.Dir(page)), filepath.Base(page)
	links := strings.NewReplacer("]("+folder+"/"+name+"#", "](#", "]("+folder+"/", "](", "](", "](../")
	seeItself := regexp.MustCompile(`: \[[^]]*\]\(` + regexp.QuoteMeta(name) + `\)`)
	itself := regexp.MustCompile(`\[([^]]*)\]\(` + regexp.QuoteMeta(name) + `\)`)
	text = regexp.MustCompile(`(?s)<!-- settings [A-Za-z_. ]+ -->.*?<!-- end -->`).ReplaceAllStringFunc(text, func(block string) string {
		head, _, _ := strings.Cut(block, "\n")
		var table strings.Builder
		for _, row := range rows {
			if slices.ContainsFunc(strings.Fields(head)[2:], func(b string) bool { return strings.HasPrefix(row.Key, b) }) {
				tables[row.Key]++
				line := fmt.Sprintf("| `%s` | %s | %s | %s |\n", row.Key, row.Values, row.Default, row.Meaning)
				table.WriteString(itself.ReplaceAllString(seeItself.ReplaceAllString(links.Replace(line), ""), "$1"))
			}
		}
		return head + "\n| key | value | default | meaning |\n|---|---|---|---|\n" + table.String() + "<!-- end -->"
	})
	return text, tables
}

// describedSettings returns a row for each setting, with links as from docs/. What several doors
// have is one row, of DOOR.
func describedSettings(t *testing.T) (rows []config.Row) {
	t.Helper()
	common := map[config.Row][]string{} // doors, by what they have in common
	all := config.Rows(app.Sections())
	of := func(row config.Row) (string, config.Row) {
		for _, section := range app.Sections() {
			if rest, ok := strings.CutPrefix(row.Key, section.Name+"."); ok {
				row.Key = "DOOR." + rest
				return section.Name, row
			}
		}
		return "", row
	}
	for _, row := range all {
		if row.Default == "" || row.Meaning == "" {
			t.Errorf("%s does not say what it means, or what its default is", row.Key)
		}
		if door, shared := of(row); door != "" {
			common[shared] = append(common[shared], door)
		}
	}
	for _, row := range all {
		_, shared := of(row)
		if doors := common[shared]; len(doors) > 1 {
			row = shared
			if len(doors) < len(app.Sections()) {
				row.Meaning += "; at `" + strings.Join(doors, "`, `") + "`"
			}
		}
		row.Values = cmp.Or(row.Values, "text")
		if strings.HasPrefix(row.Default, "127.0.0.1:") {
			row.Default = "`" + row.Default + "`"
		}
		if !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
	}
	return rows
}

// TestDefaultsOfTheReference: a default that the reference writes as a value changes nothing if it
// is set. Settings of one door are not in what is compared.
func TestDefaultsOfTheReference(t *testing.T) {
	told := func(flags map[string]string) string {
		c, err := config.Load(config.Sources{Doors: app.Sections(), NoFile: true, Environment: none, Flags: flags})
		if err != nil {
			t.Fatal(flags, err)
		}
		text, err := json.MarshalIndent(c, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	// Those whose zero value stands for the default, which is elsewhere.
	elsewhere := []string{
		"store.redis.url", "store.redis.prefix", "store.redis.timeout", "store.redis.deny_cache", "tls.min_version", "regions.timeout",
		"reload.guard", "reload.max_lost", "warnings.key_refused", "warnings.new_keys", "warnings.keys",
	}
	without, compared := told(nil), 0
	for _, row := range config.Rows(app.Sections()) {
		value := strings.Trim(row.Default, "`")
		if value == row.Default || strings.ContainsAny(value, " `") || row.Key == "overload.memory" {
			continue // in words, or a variable
		}
		compared++
		if told(map[string]string{row.Key: value}) != without && !slices.Contains(elsewhere, row.Key) {
			t.Errorf("%s: %s is not the default", row.Key, value)
		}
	}
	if compared < 60 {
		t.Errorf("only %d compared", compared)
	}
}
