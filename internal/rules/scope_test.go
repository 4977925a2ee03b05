package rules_test

import (
	"testing"

	"github.com/headgate/headgate/internal/rules"
)

func TestSplitScopeUndoesScopeOf(t *testing.T) {
	for _, row := range [][2]string{{"api", "login"}, {"a/b", "c/d"}, {"a%2Fb", "c%"}, {"", "x"}, {"a%25/", ""}} {
		if domain, name := rules.SplitScope(rules.ScopeOf(row[0], row[1])); domain != row[0] || name != row[1] {
			t.Errorf("%q and %q came back as %q and %q", row[0], row[1], domain, name)
		}
	}
}
