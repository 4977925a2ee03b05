//go:build !race

package tablefile_test

import (
	"strings"
	"testing"
)

// Of a million broken rows the first ten are told, and how many more there are.
func TestMillionBrokenRows(t *testing.T) {
	t.Parallel()
	_, wrong := read("t.csv", "key,rate\n"+strings.Repeat("a,\n", 1_000_000))
	lines := strings.Split(wrong, "\n")
	if len(lines) != 11 || lines[9] != `t.csv:11:3: the row has no "rate"` || lines[10] != "t.csv: 999990 more mistakes are not shown" {
		t.Errorf("%d lines: %s", len(lines), wrong)
	}
}
