package config_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	diff "github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

var update = flag.Bool("update", false, "rewrite testdata/settings.txt, testdata/defaults.txt and docs/reference/settings.md")

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

// TestTablesOfSettings: docs/reference/settings.md says what the code says of each setting. A table
// begins with a comment that has the beginnings of the keys that it is of.
func TestTablesOfSettings(t *testing.T) {
	const page = "../../docs/reference/settings.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	rows := describedSettings(t)
	tables := map[string]int{}
	want := regexp.MustCompile(`(?s)<!-- settings [A-Za-z_. ]+ -->.*?<!-- end -->`).ReplaceAllStringFunc(string(text), func(block string) string {
		head, _, _ := strings.Cut(block, "\n")
		var table strings.Builder
		for _, row := range rows {
			if slices.ContainsFunc(strings.Fields(head)[2:], func(b string) bool { return strings.HasPrefix(row.Key, b) }) {
				tables[row.Key]++
				fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", row.Key, row.Values, row.Default, row.Meaning)
			}
		}
		return head + "\n| key | value | default | meaning |\n|---|---|---|---|\n" + table.String() + "<!-- end -->"
	})
	for _, row := range rows {
		if tables[row.Key] != 1 {
			t.Errorf("%d tables have %s", tables[row.Key], row.Key)
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Error("docs/reference/settings.md is not what the settings say: go test ./internal/config -run '^TestTablesOfSettings$' -update")
	}
}

// describedSettings returns a row for each setting, with links that work in docs/reference. What
// several doors have is one row, of DOOR.
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
		row.Default, row.Meaning = strings.ReplaceAll(row.Default, "](", "](../"), strings.ReplaceAll(row.Meaning, "](", "](../")
		row.Meaning = strings.ReplaceAll(row.Meaning, "](../reference/", "](")
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
