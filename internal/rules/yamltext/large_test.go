//go:build !race

package yamltext_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules/yamltext"
)

// Values are counted before the YAML reader spends memory on them, by the characters
// before a value; the limit is exact.
func TestTextsAreBounded(t *testing.T) {
	t.Parallel()
	const tooMany = "the file has more than 1000000 values"
	const remark = "# as long-winded:a remark - or ? any : text, [this] {that}" // of 6 values
	for _, unit := range []string{"\n", ",", "[", "{", ": ", "- ", "? "} {
		for extra, want := range []string{"", tooMany} {
			if extra == 0 && unit != "," {
				continue // all of them count alike
			}
			report := yamltext.Report{File: "f"}
			// Comments count too: they are not recognised yet.
			src := remark + strings.Repeat("#"+unit, yamltext.MaxValues-6+extra)
			docs := yamltext.Read([]byte(src), &report)
			got := ""
			if list := report.Sorted(); len(list) == 1 {
				got = list[0].Message
			}
			if got != want || len(docs) > 0 {
				t.Errorf("6 and %d times %q: %q, want %q", yamltext.MaxValues-6+extra, unit, got, want)
			}
		}
	}
	for size, want := range map[int]bool{yamltext.MaxFileSize: true, yamltext.MaxFileSize + 1: false} {
		report := yamltext.Report{File: "f"}
		yamltext.Read([]byte("#"+strings.Repeat("x", size-1)), &report)
		if ok := len(report.Sorted()) == 0; ok != want {
			t.Errorf("%d bytes: %v", size, report.Sorted())
		}
	}
}
