package yamltext_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// Where values may be secrets, what YAML makes of one by mistake is told without it.
func TestSecretsAreNotRepeated(t *testing.T) {
	t.Parallel()
	for _, src := range []string{"token: *hunter2\n", "token: !hunter2 x\n", "token: @hunter2\n", "token: %hunter2\n", "token: a: hunter2\n", "token: [hunter2\n", "token: \"hunter2\n"} {
		report := yamltext.Report{File: "f", Secrets: true}
		yamltext.Read([]byte(src), &report)
		problems := diagnostic.Problems(report.Sorted())
		if len(problems) == 0 || strings.Contains(problems.Error(), "hunter2") {
			t.Errorf("%q: %v", src, problems)
		}
	}
}

// A whole number is one of decimal digits; what other notations make of it is not
// what its writer sees.
func TestInteger(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"5": "5", "-3": "-3", "1_000": "1000", "0": "0",
		"010": "decimal digits", "0x10": "decimal digits", "0o17": "decimal digits", "1.5": "decimal digits", "1e3": "decimal digits",
		"1001": "from -10 to 1000", "99999999999999999999": "from -10 to 1000", "-11": "from -10 to 1000",
		`"5"`: "must be a whole number, not text; remove the quotes", "true": "must be a whole number",
	} {
		report := yamltext.Report{File: "f"}
		docs := yamltext.Read([]byte(text), &report)
		if len(docs) != 1 {
			t.Fatalf("%s: %v", text, report.Sorted())
		}
		got := ""
		if n, ok := report.Integer(docs[0], "n", -10, 1000); ok {
			got = fmt.Sprint(n)
		} else {
			got = diagnostic.Problems(report.Sorted()).Error()
		}
		if got != want && (len(report.Sorted()) == 0 || !strings.Contains(got, want)) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
