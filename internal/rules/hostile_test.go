//go:build !race

// One goroutine at work for long: the race detector finds nothing and takes
// ten times as long.

package rules_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// Files that would multiply when read take neither long nor much memory.
func TestHostileFilesAreBounded(t *testing.T) {
	var bomb, merges strings.Builder
	bomb.WriteString("domain: d\nx-a0: &a0 {k: v}\n")
	for i := range 40 {
		fmt.Fprintf(&bomb, "x-a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 20), i)
	}
	merges.WriteString("domain: d\nx-m: &m {")
	for i := range 20_000 {
		fmt.Fprintf(&merges, "k%d: v, ", i)
	}
	merges.WriteString("}\nlimits:\n" + strings.Repeat("  - <<: *m\n", 20_000))
	for name, src := range map[string]string{
		"alias bomb":       bomb.String(),
		"merges":           merges.String(),
		"long list":        "domain: d\nlimits: [" + strings.Repeat("a,", yamltext.MaxFileSize/2-50) + "]\n",
		"brackets":         strings.Repeat("[", yamltext.MaxFileSize),
		"braces":           strings.Repeat("{a: ", yamltext.MaxFileSize/4),
		"dashes":           strings.Repeat("- ", yamltext.MaxFileSize/2),
		"question":         strings.Repeat("? ", yamltext.MaxFileSize/2),
		"anchors":          "domain: d\nlimits: [" + strings.Repeat("&a ,", yamltext.MaxFileSize/4-50) + "]\n",
		"long scalar":      "domain: \"" + strings.Repeat("x", yamltext.MaxFileSize-20) + "\"\n",
		"quarter list":     "domain: d\nlimits: [" + strings.Repeat("a,", yamltext.MaxValues/4) + "]\n",
		"many keys":        "domain: d\nlimits:\n  - name: r\n    rate: 1/s\n    key: [" + strings.Repeat("a, ", 100_000) + "]\n",
		"many paths":       "domain: d\nlimits:\n  - name: r\n    rate: 1/s\n    match: {path: /" + strings.Repeat("**/a/", 2000) + "}\n",
		"documents":        strings.Repeat("---\n", yamltext.MaxFileSize/4),
		"many descriptors": "domain: d\ndescriptors:\n" + strings.Repeat("- key: a\n", 50_000),
		"deep descriptors": "domain: d\ndescriptors: [" + strings.Repeat("{key: a, descriptors: [", 50_000),
		"limits nested":    "domain: d\ndescriptors: [" + strings.Repeat("{key: a, rate_limit: {rate: 1/s}, descriptors: [", 12) + strings.Repeat("{key: b, rate_limit: {rate: 1/s}},", 20_000) + strings.Repeat("]}", 12) + "]\n",
		"metadata":         "domain: d\ndescriptors: [{key: a, rate_limit: {}, metadata: {a: [" + strings.Repeat("{},", 100_000) + "]}}]\n",
		"many problems":    "domain: d\nlimits:\n" + strings.Repeat("- {}\n", 50_000),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			set, _ := rulefile.Parse(rulefile.Source{Name: "f", Data: []byte(src)})
			runtime.ReadMemStats(&after)
			if set != nil && name != "documents" {
				t.Error("it was accepted")
			}
			t.Logf("%d MiB allocated in all", (after.TotalAlloc-before.TotalAlloc)>>20)
			if after.TotalAlloc-before.TotalAlloc > 512<<20 {
				t.Errorf("%d MiB allocated in all", (after.TotalAlloc-before.TotalAlloc)>>20)
			}
		})
	}
}
