package rulefile_test

import (
	"fmt"
	"os"
	"path/filepath"
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
