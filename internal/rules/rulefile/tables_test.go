package rulefile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rules/rulefile"
)

// patience is how long reading a million rows may take. It takes a few seconds, but 106 s were
// seen with the race detector on two cores with a load of eight. What grows with the square
// of the rows takes hours.
const patience = 5 * time.Minute

// writeAll writes files into a folder.
func writeAll(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const tabledRule = "domain: d\nlimits:\n  - {name: a, key: user, rate: {table: %s, default: 5/s}}\n"

// Tables know which tables were read, also in vain, and whether they have changed since.
func TestTablesKnowWhatHasChanged(t *testing.T) {
	t.Parallel()
	dir, tables := t.TempDir(), new(rulefile.Tables)
	o := rulefile.Options{Tables: tables}
	load := func(wantOK, wantChanged bool) {
		t.Helper()
		if changed := tables.Changed(); changed != wantChanged {
			t.Errorf("before: changed %t, want %t", changed, wantChanged)
		}
		if _, err := o.Load(filepath.Join(dir, "rules.yaml")); (err == nil) != wantOK {
			t.Errorf("load: %v", err)
		}
		if tables.Changed() {
			t.Error("changed just after reading")
		}
	}
	writeAll(t, dir, map[string]string{"rules.yaml": fmt.Sprintf(tabledRule, "t.csv")})
	load(false, false) // there is no table
	first := tables.Loaded()
	writeAll(t, dir, map[string]string{"t.csv": "key,rate\nann,5/s\n"})
	load(true, true)
	if tables.Loaded() == first {
		t.Error("another table has the same fingerprint")
	}
	writeAll(t, dir, map[string]string{"t.csv": "key,rate\nann,5/x\n"})
	load(false, true)
	writeAll(t, dir, map[string]string{"t.csv": "key,rate\nann,6/s\n"})
	load(true, true)
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "t.csv"), old, old); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second call knows the new time
		if tables.Changed() {
			t.Error("only the time has changed")
		}
	}
	writeAll(t, dir, map[string]string{"rules.yaml": fmt.Sprintf(tabledRule, "u.csv"), "u.csv": "key,rate\n"})
	load(true, false)
	if got := tables.Paths(); len(got) != 1 || filepath.Base(got[0]) != "u.csv" {
		t.Errorf("the tables are %v", got)
	}
}

// A table of a million rows, most of them broken in ways that differ, is refused as a whole:
// there are no rules, the first ten mistakes are named, and how many more there are.
func TestMillionBrokenRowsAreRefused(t *testing.T) {
	t.Parallel()
	const rows = 1_000_000
	var table strings.Builder
	table.WriteString("key,rate,zone\n")
	for i := range rows {
		switch i % 4 {
		case 0:
			fmt.Fprintf(&table, "k%d,5/day,Europe/Atlantis%d\n", i, i)
		case 1:
			fmt.Fprintf(&table, "k%d,%d/minuet,\n", i, i)
		case 2:
			fmt.Fprintf(&table, "k%d,,UTC\n", i)
		default:
			fmt.Fprintf(&table, "k%d,5/day,UTC\n", i)
		}
	}
	dir := t.TempDir()
	rule := "domain: d\nlimits:\n  - {name: a, key: user, rate: {table: t.csv, default: 9/day}, algorithm: fixed_window, timezone: {column: zone}}\n"
	writeAll(t, dir, map[string]string{"rules.yaml": rule, "t.csv": table.String()})
	start := time.Now()
	rs, err := rulefile.Load(filepath.Join(dir, "rules.yaml"))
	took := time.Since(start)
	if rs != nil || err == nil {
		t.Fatal("the table is in use")
	}
	t.Log(took)
	for _, want := range []string{
		`t.csv:2:10: unknown timezone "Europe/Atlantis0"`, `t.csv:3:4: unknown unit "minuet", did you mean "minute"?`,
		`t.csv:4:4: the row has no "rate"`, `t.csv:6:10: unknown timezone "Europe/Atlantis4"`, "t.csv: 749990 more mistakes are not shown",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if n := strings.Count(err.Error(), "t.csv:"); n != 11 {
		t.Errorf("%d lines, want 11", n)
	}
	if took > patience {
		t.Errorf("it took %v", took)
	}
}
