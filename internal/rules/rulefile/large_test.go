//go:build !race

package rulefile_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rules/rulefile"
)

// A million rows are read in less than two seconds of an idle machine; the test allows for
// a busy one and for the race detector. The figure is in docs/rules/limits-by-customer.md.
func TestMillionRows(t *testing.T) {
	t.Parallel()
	const rows = 1_000_000
	var table strings.Builder
	table.WriteString("key,rate,burst\n")
	for i := range rows {
		fmt.Fprintf(&table, "customer-%027d,%d/minute,%d\n", i, i%50+1, i%3*100+100)
	}
	dir := t.TempDir()
	writeAll(t, dir, map[string]string{"rules.yaml": fmt.Sprintf(tabledRule, "t.csv"), "t.csv": table.String()})
	start := time.Now()
	rs, err := rulefile.Load(filepath.Join(dir, "rules.yaml"))
	took := time.Since(start)
	if err != nil {
		t.Fatal(err)
	}
	got := rs.Tables()[0]
	each := float64(got.Rows.Size()) / rows
	t.Logf("%d rows, %d limits: %v, %.1f bytes a row", got.Rows.Len(), len(got.Limits), took, each)
	if got.Rows.Len() != rows || each > 100 || took > patience {
		t.Error("this is too much")
	}
}

// A list of a million broken entries is refused as a whole, with the first ten.
func TestMillionBrokenEntriesAreRefused(t *testing.T) {
	t.Parallel()
	const n = 1_000_000
	var list strings.Builder
	for i := range n {
		fmt.Fprintf(&list, "10.0.0.%d/8\n", i%255+1)
	}
	dir := t.TempDir()
	writeAll(t, dir, map[string]string{"rules.yaml": "domain: d\ndeny: {client_ip: {file: bad.txt}}\n", "bad.txt": list.String()})
	rs, err := rulefile.Load(filepath.Join(dir, "rules.yaml"))
	if rs != nil || err == nil {
		t.Fatal("the list is in use")
	}
	if !strings.Contains(err.Error(), "bad.txt:10:1: ") || !strings.Contains(err.Error(), "bad.txt: 999990 more mistakes are not shown") || strings.Count(err.Error(), "bad.txt:") != 11 {
		t.Error(err)
	}
}

// A table of a hundred thousand rows, most of them broken in ways that differ, is refused as a whole:
// there are no rules, the first ten mistakes are named, and how many more there are.
func TestBrokenRowsAreRefused(t *testing.T) {
	t.Parallel()
	const rows = 100_000
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
		`t.csv:4:4: the row has no "rate"`, `t.csv:6:10: unknown timezone "Europe/Atlantis4"`, "t.csv: 74990 more mistakes are not shown",
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

// A million addresses and a million keys: the figures are in docs/rules/lists.md.
func TestMillionEntries(t *testing.T) {
	t.Parallel()
	const n = 1_000_000
	var addresses, users strings.Builder
	for i := range n {
		fmt.Fprintf(&addresses, "%d.%d.%d.0/25\n", 11+i>>16, i>>8&255, i&255)
		fmt.Fprintf(&users, "user-%027d\n", i)
	}
	dir := t.TempDir()
	writeAll(t, dir, map[string]string{"rules.yaml": listedRules, "good.txt": "10.0.0.0/8\n", "bad.txt": addresses.String(), "users.txt": users.String()})
	runtime.GC()
	start := time.Now()
	rs, err := rulefile.Load(filepath.Join(dir, "rules.yaml"))
	took := time.Since(start)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range rs.Lists()[1:] {
		each := float64(l.Size()) / float64(l.Entries())
		t.Logf("%s: %d entries, %.1f bytes each, %v", l.Rule().Name, l.Entries(), each, l.Took)
		if l.Entries() < n || each > 40 {
			t.Error("this is too much")
		}
	}
	if took > patience {
		t.Errorf("it took %v", took)
	}
}
