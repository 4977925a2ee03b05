package rulefile_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules/rulefile"
)

const listedRules = "domain: d\nallow: {client_ip: {file: good.txt}}\ndeny: {client_ip: [192.0.2.1, {file: bad.txt}], user: {file: users.txt}}\n"

// Lists of several documents and files are one list for each attribute, mode and status.
func TestListsAreJoined(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeAll(t, dir, map[string]string{
		"a.yaml":    listedRules,
		"b.yaml":    "domain: d\ndeny: {client_ip: [192.0.2.2, {file: bad.txt}]}\n---\ndomain: d\ndeny: {mode: shadow, client_ip: 192.0.2.3}\n---\ndomain: e\ndeny: {client_ip: 192.0.2.4}\n",
		"good.txt":  "\uFEFF10.0.0.0/8\r\n# b\r\n2001:db8::/32\r\n",
		"bad.txt":   "203.0.113.0/24\n",
		"users.txt": "eve\nmallory # m\n",
	})
	rs, err := rulefile.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range rs.Lists() {
		got = append(got, fmt.Sprintf("%s %s %s %s: %d by %v", l.Domain, l.Rule().Name, l.Mode, filepath.Base(l.File), l.Entries(), l.Files()))
	}
	want := `d allow client_ip enforce a.yaml: 2 by [good.txt]
d deny client_ip enforce a.yaml: 3 by [bad.txt]
d deny user enforce a.yaml: 2 by [users.txt]
d deny client_ip shadow b.yaml: 1 by []
e deny client_ip enforce b.yaml: 1 by []`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if len(rs.Warnings()) > 0 {
		t.Errorf("warnings: %v", rs.Warnings())
	}
}

// Lists are followed like tables: also one that could not be read.
func TestListsAreFollowed(t *testing.T) {
	t.Parallel()
	dir, tables := t.TempDir(), new(rulefile.Tables)
	o := rulefile.Options{Tables: tables}
	writeAll(t, dir, map[string]string{"rules.yaml": listedRules, "good.txt": "10.0.0.0/8\n", "users.txt": "eve\n"})
	_, err := o.Load(filepath.Join(dir, "rules.yaml"))
	if err == nil || !strings.Contains(err.Error(), `rules.yaml:3:38: the list "bad.txt" cannot be read: no such file or directory`) {
		t.Errorf("without a list: %v", err)
	}
	writeAll(t, dir, map[string]string{"bad.txt": "10.0.0.1/8\n203.0.113.300\n"})
	if !tables.Changed() {
		t.Error("a list has come")
	}
	_, err = o.Load(filepath.Join(dir, "rules.yaml"))
	for _, want := range []string{
		`bad.txt:1:1: "10.0.0.1/8" has bits set after its prefix length, did you mean "10.0.0.0/8"?`,
		`bad.txt:2:1: invalid address "203.0.113.300"`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	writeAll(t, dir, map[string]string{"bad.txt": "10.0.0.0/8\n"})
	if !tables.Changed() {
		t.Error("a list has changed")
	}
	if _, err = o.Load(filepath.Join(dir, "rules.yaml")); err != nil || tables.Changed() {
		t.Errorf("%v, changed %v", err, tables.Changed())
	}
}

func TestSuspiciousLists(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeAll(t, dir, map[string]string{
		"rules.yaml": listedRules,
		"good.txt":   "10.0.0.0/8\n",
		"bad.txt":    "203.0.113.7\n10.1.0.0/16\n10.2.3.4\n0.0.0.0/0\n::/0\n",
		"users.txt":  "# nobody yet\n",
	})
	rs, err := rulefile.Load(filepath.Join(dir, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, w := range rs.Warnings() {
		got.WriteString(strings.ReplaceAll(w.String(), dir+string(filepath.Separator), "") + "\n")
	}
	want := `rules.yaml:3:38: warning: "10.1.0.0/16" (bad.txt:2) is also on the allow list (good.txt:1: 10.0.0.0/8), which wins; so is another entry
rules.yaml:3:62: warning: the list "users.txt" has no entries
bad.txt:4:1: warning: 0.0.0.0/0 is every IPv4 address
`
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
}
