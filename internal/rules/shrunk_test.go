package rules_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// hosts are n lines of a list of addresses.
func hosts(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "192.0.%d.%d\n", i>>8, i&255)
	}
	return b.String()
}

// customers are n rows of a table.
func customers(n int) string {
	var b strings.Builder
	b.WriteString("key,rate\n")
	for i := range n {
		fmt.Fprintf(&b, "c%d,5/minute\n", i)
	}
	return b.String()
}

// What a list or a table may lose, and what counts as cut off.
func TestShrunk(t *testing.T) {
	t.Parallel()
	const (
		base   = "domain: d\nlimits: []\n"
		denied = base + "deny: {client_ip: {file: l}}\n"
		shadow = base + "deny: {mode: shadow, client_ip: {file: l}}\n"
		tabled = "domain: d\nlimits:\n  - {name: a, key: user, rate: {table: t.csv, default: 5/s}}\n"
	)
	dir := t.TempDir()
	load := func(text string, n int) *rules.Ruleset {
		for name, content := range map[string]string{"r.yaml": text, "l": hosts(n), "t.csv": customers(n)} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		rs, err := rulefile.Load(filepath.Join(dir, "r.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		return rs
	}
	for _, row := range []struct {
		was, is       string
		before, after int
		want          string
	}{
		{denied, denied, 1000, 500, ""},
		{denied, denied, 1000, 499, `the list "deny client_ip" of d shrinks from 1000 to 499 entries`},
		{denied, denied, 1000, 0, `the list "deny client_ip" of d shrinks from 1000 to 0 entries`},
		{denied, denied, 99, 0, ""},
		{denied, denied, 100, 49, `the list "deny client_ip" of d shrinks from 100 to 49 entries`},
		{denied, denied, 10, 1000, ""},
		{denied, base, 1000, 1000, `the list "deny client_ip" of d with 1000 entries is gone`},
		{denied, shadow, 1000, 1000, ""},
		{shadow, denied, 1000, 1000, ""},
		{denied, denied + "---\n" + shadow, 1000, 400, `the list "deny client_ip" of d shrinks from 1000 to 400 entries`},
		{denied, strings.Replace(denied, "{client_ip", "{status: 451, client_ip", 1), 1000, 1000, ""},
		{strings.Replace(denied, "deny", "allow", 1), strings.Replace(denied, "deny", "allow", 1), 1000, 1, `the list "allow client_ip" of d shrinks from 1000 to 1 entries`},
		{tabled, tabled, 1000, 499, `t.csv shrinks from 1000 to 499 entries`},
		{tabled, base, 1000, 1000, ""},
	} {
		found := rules.Shrunk(load(row.was, row.before), load(row.is, row.after), 50)
		got := fmt.Sprint(found)
		if len(found) > 1 || row.want == "" && len(found) > 0 || !strings.Contains(got, row.want) {
			t.Errorf("%q, %d to %d: %s, want %s", row.is, row.before, row.after, got, row.want)
		}
	}
}
