package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
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
	t.Parallel()
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
	t.Parallel()
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

// manyAddresses are n lines of a list.
func manyAddresses(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "192.0.%d.%d\n", i>>8, i&255)
	}
	return b.String()
}

// TestShrunkLists: a list of blocked addresses that is cut off unblocks nobody, unless an
// operator accepts it or the guard is off. A list that rules no longer have is a change of
// rules.
func TestShrunkLists(t *testing.T) {
	t.Parallel()
	const denied = "domain: api\nlimits: []\ndeny: {client_ip: {file: blocked.txt}}\n"
	last := `{"domain":"api","attributes":{"client_ip":"192.0.3.231"}}` // of a thousand
	for _, row := range []struct {
		guard config.Guard
		rules string
		left  int
		want  string // what the log says
		held  bool
	}{
		{config.GuardWarn, denied, 500, "", false},
		{config.GuardWarn, denied, 499, `the list \"deny client_ip\" of api shrinks from 1000 to 499 entries; reload.guard refused the reload`, true},
		{config.GuardWarn, denied, 0, `shrinks from 1000 to 0 entries`, true},
		{config.GuardRefuse, denied, 0, `shrinks from 1000 to 0 entries`, true},
		{config.GuardOff, denied, 0, "", false},
		{config.GuardWarn, "domain: api\nlimits: []\n", 1000, `reload removes rules" lost="the list \"deny client_ip\" of api with 1000 entries is gone"`, false},
		{config.GuardRefuse, "domain: api\nlimits: []\n", 1000, `with 1000 entries is gone; reload.guard refused`, true},
	} {
		var list string
		f := run(t, denied, nil, withAdmin, func(c *config.Config) {
			c.Reload.Guard, list = row.guard, filepath.Join(filepath.Dir(c.Rules[0]), "blocked.txt")
			writeFile(t, list, manyAddresses(1000))
		})
		writeFile(t, f.config.Rules[0], row.rules)
		writeFile(t, list, manyAddresses(row.left))
		if err := f.Reload(); (err != nil) != row.held {
			t.Errorf("%s, %d left: %v", row.guard, row.left, err)
		}
		blocked := func() bool { _, body := f.post(t, "/v1/check", last); return strings.Contains(body, "deny client_ip") }
		if blocked() != row.held {
			t.Errorf("%s, %d left: blocked %v", row.guard, row.left, !row.held)
		}
		log := f.journal.text.String()
		if row.want == "" && (strings.Contains(log, "level=WARN msg=\"reload") || strings.Contains(log, "shrinks")) || !strings.Contains(log, row.want) {
			t.Errorf("%s, %d left: the log lacks %s:\n%s", row.guard, row.left, row.want, log)
		}
		if !row.held {
			continue
		}
		if f.change(t, "accept", http.StatusOK); blocked() {
			t.Errorf("%s, %d left: still blocked after an operator has accepted the list", row.guard, row.left)
		}
	}
}
