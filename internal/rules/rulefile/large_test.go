//go:build !race

package rulefile_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rules/rulefile"
)

// A million rows are read in less than two seconds of an idle machine; the test allows for
// a busy one and for the race detector. The figure is in docs/limits-by-customer.md.
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
