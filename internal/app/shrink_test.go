package app_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
)

// manyRules are n refusing rules, one per line.
func manyRules(n int) string {
	var b strings.Builder
	b.WriteString("domain: api\nlimits:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {name: r%d, match: {path: /%d}, rate: 0/minute}\n", i, i)
	}
	return b.String()
}

// guarded returns an App with ten rules and a guard.
func guarded(t *testing.T, guard config.Guard) *fixture {
	return run(t, manyRules(10), nil, withAdmin, func(c *config.Config) { c.Reload.Guard = guard })
}

// TestEmptiedFiles: a rules file that becomes empty removes no limit.
func TestEmptiedFiles(t *testing.T) {
	for _, text := range []string{"", "\n", "# nothing\n", "---\n", "domain: api\n", "domain: api\nlimits:\n", "domain: api\ndescriptors:\n", "x-a: 1\n", "nul"} {
		f := guarded(t, config.GuardOff)
		if text == "nul" { // some file systems leave this after a crash
			text = strings.Repeat("\x00", 100)
		}
		writeFile(t, f.config.Rules[0], text)
		if err := f.Reload(); err == nil {
			t.Errorf("%.20q was loaded", text)
		}
		if status, body := f.post(t, "/v1/check", `{"domain":"api","attributes":{"path":"/1"}}`); status != http.StatusTooManyRequests {
			t.Errorf("%.20q: %d %s", text, status, body)
		}
	}
	f := guarded(t, config.GuardOff)
	writeFile(t, f.config.Rules[0], "domain: api\nlimits: []\n")
	if err := f.Reload(); err != nil {
		t.Errorf("an explicit list: %v", err)
	}
}

// TestShrunkRules: rules cut off after each line, with each guard.
func TestShrunkRules(t *testing.T) {
	for _, row := range []struct {
		guard       config.Guard
		text        string
		left        int
		warned, bad bool
	}{
		{config.GuardWarn, manyRules(5), 5, false, false},
		{config.GuardWarn, manyRules(4), 4, true, false},
		{config.GuardWarn, "domain: api\nlimits: []\n", 0, true, false},
		{config.GuardWarn, strings.Replace(manyRules(10), "domain: api", "domain: other", 1), 10, true, false},
		{config.GuardOff, manyRules(1), 1, false, false},
		{config.GuardRefuse, manyRules(5), 5, false, false},
		{config.GuardRefuse, manyRules(4), 10, false, true},
		{config.GuardRefuse, "domain: api\nlimits: []\n", 10, false, true},
		{config.GuardRefuse, manyRules(20), 20, false, false},
	} {
		f := guarded(t, row.guard)
		writeFile(t, f.config.Rules[0], row.text)
		if err := f.Reload(); (err != nil) != row.bad {
			t.Errorf("%s, %.40q: %v", row.guard, row.text, err)
		}
		f.expectRules(t, row.left)
		if warned := strings.Contains(f.journal.text.String(), "reload removes rules"); warned != row.warned {
			t.Errorf("%s, %.40q: warned %v", row.guard, row.text, warned)
		}
		if held := f.metric(t, "headgate_rules_held"); (held == "1") != row.bad {
			t.Errorf("%s, %.40q: held %s", row.guard, row.text, held)
		}
	}
}

// change posts to the admin door.
func (f *fixture) change(t *testing.T, what string, want int) (out admin.RulesChange) {
	t.Helper()
	res, err := f.client.Post(f.adminURL("/v1/rules/"+what), "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	body := read(t, res)
	if res.StatusCode != want {
		t.Errorf("%s: %d %s", what, res.StatusCode, body)
	}
	return out
}

// TestRollBack: operators can accept or undo a reload that removes rules.
func TestRollBack(t *testing.T) {
	f := guarded(t, config.GuardRefuse)
	f.change(t, "rollback", http.StatusConflict)
	f.change(t, "accept", http.StatusConflict)
	writeFile(t, f.config.Rules[0], manyRules(2))
	if err := f.Reload(); err == nil || !strings.Contains(err.Error(), "8 of 10 rules are gone") {
		t.Errorf("held: %v", err)
	}
	f.change(t, "accept", http.StatusOK)
	f.expectRules(t, 2)
	f.change(t, "accept", http.StatusConflict)
	f.change(t, "rollback", http.StatusOK)
	f.expectRules(t, 10)
	if got := f.metric(t, "headgate_rules_rolled_back"); got != "1" {
		t.Errorf("rolled back: %s", got)
	}
	f.change(t, "rollback", http.StatusOK)
	f.expectRules(t, 2)
	if got := f.metric(t, "headgate_rules_rolled_back"); got != "0" {
		t.Errorf("undone: %s", got)
	}
	if err := os.Remove(f.config.Rules[0]); err != nil {
		t.Fatal(err)
	}
	if err := f.Reload(); err == nil {
		t.Error("reloaded without files")
	}
	f.expectRules(t, 2)
}
