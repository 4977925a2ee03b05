package ruletest_test

import (
	"os"
	"testing"

	"github.com/headgate/headgate/internal/replay/ruletest"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

func TestForeignTest(t *testing.T) {
	t.Parallel()
	promtool, err := os.ReadFile("../../../dist/prometheus/alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ text, what string }{
		{string(promtool), "rule_files"},
		{"apiVersion: v1\nkind: Pod\n", "apiVersion"},
		{"name: e2e\non: [push]\njobs: {}\n", "name"},
		{"tests:\n  - {name: a, trace: [{request: {}}]}\n", ""},
		{"tets:\n  - {name: a}\n", ""}, // a mistake, and to be told
		{"strat: 2026-01-01T00:00:00Z\nfoo: bar\n", ""},
		{"foo: bar\ntests:\n  - {name: a, trce: []}\n", ""},
		{"x-shared: {}\n", ""},
		{"[]\n", ""},
		{"", ""},
		{"a: [", ""},
	} {
		what, foreign := ruletest.Foreign(rulefile.Source{Name: "a_test.yaml", Data: []byte(row.text)})
		if what != row.what || foreign != (row.what != "") {
			t.Errorf("%.40q: %q, %v, want %q", row.text, what, foreign, row.what)
		}
	}
}
