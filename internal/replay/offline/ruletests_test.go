package offline_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/replay/offline"
	"github.com/headgate/headgate/internal/replay/ruletest"
)

// The worked examples pass.
func TestExampleRuleTests(t *testing.T) {
	for folder, atLeast := range map[string]int{"rule-tests": 20, "figma": 5, "steps": 4, "failed-logins": 2, "time-zones": 4, "claims": 4} {
		r, err := offline.RuleTests{Paths: []string{"../../../examples/" + folder}}.Run(t.Context())
		if err != nil || !r.OK || r.Passed < atLeast {
			t.Errorf("%s: %d passed, %d failed, %v, %v", folder, r.Passed, r.Failed, r.Diagnoses, err)
		}
		for _, test := range r.Tests {
			if !test.Passed {
				t.Errorf("%s: %+v", folder, test)
			}
		}
	}
}

func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

const oneRule = "domain: d\nlimits: [{name: login, rate: 2/minute, match: {path: /login}}]\n"

// Errors in test files are reported with their position, and no test passes.
func TestRuleTestsThatAreWrong(t *testing.T) {
	for name, c := range map[string]struct{ rules, test, want string }{
		"rules":   {"domain: d\nlimits: [{name: x}]\n", "tests: [{name: a, trace: [{request: {}, expect: any}]}]", `rules.yaml:1:1: warning`},
		"syntax":  {oneRule, "tests: [{name: a, trace: [{request: {}, expect: allowwed}]}]", `1:49: unknown expect "allowwed", did you mean "allowed"?`},
		"rule":    {oneRule, "tests: [{name: a, trace: [{request: {}, expect: {rule: logn}}]}]", `domain "d" has no rule "logn"; did you mean "login"?`},
		"shadow":  {oneRule, "tests: [{name: a, trace: [{request: {}, expect: {shadow: [far]}}]}]", `domain "d" has no rule "far"; known: login`},
		"domain":  {oneRule + "---\ndomain: e\n", "tests: [{name: a, trace: [{request: {}, expect: any}]}]", `test "a" does not name a domain, and the rules have 2; set domain in the test or in the file to one of d, e`},
		"nowhere": {oneRule, "rules: nowhere.yaml\ntests: [{name: a, trace: [{request: {}, expect: any}]}]", "nowhere.yaml: cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := writeFiles(t, map[string]string{"rules.yaml": c.rules, "a_test.yaml": c.test})
			r, err := offline.RuleTests{Paths: []string{folder}}.Run(t.Context())
			if err != nil || r.OK || len(r.Diagnoses) == 0 || len(r.Tests) > 0 {
				t.Fatalf("%+v, %v", r, err)
			}
			d := r.Diagnoses[0]
			text := d.Position + ": " + d.Message + "; " + d.Hint
			if name != "rules" && !strings.Contains(text, c.want) {
				t.Errorf("got %s\nwant %s", text, c.want)
			}
		})
	}
}

// A test can be cancelled.
func TestRuleTestsEnd(t *testing.T) {
	folder := writeFiles(t, map[string]string{
		"rules.yaml":  oneRule,
		"a_test.yaml": "tests: [{name: a, trace: [{request: {path: /login}, every: 1s, repeat: 1000000, expect: any}]}]",
	})
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	_, err := offline.RuleTests{Paths: []string{folder}, Options: ruletest.Options{Asked: func(n int) {
		asked += n
		cancel()
	}}}.Run(ctx)
	if !errors.Is(err, context.Canceled) || asked == 0 || asked > 1<<15 {
		t.Errorf("%d requests, %v", asked, err)
	}
}

// The example of the documentation passes.
func TestDocumentedRuleTests(t *testing.T) {
	page, err := os.ReadFile("../../../docs/try/rule-tests.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```yaml\n")
	if len(blocks) != 3 {
		t.Fatalf("%d examples", len(blocks)-1)
	}
	text := func(block string) string {
		inside, _, _ := strings.Cut(block, "```")
		return inside
	}
	folder := writeFiles(t, map[string]string{"rules.yaml": text(blocks[1]), "rules_test.yaml": text(blocks[2])})
	r, err := offline.RuleTests{Paths: []string{folder}}.Run(t.Context())
	if err != nil || !r.OK || r.Passed != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}
