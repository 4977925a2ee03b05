package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"weak"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/follow"
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

// denied is a deny list of n addresses and one more.
func denied(n int) string {
	var b strings.Builder
	b.WriteString("deny: {client_ip: [")
	for i := range n {
		fmt.Fprintf(&b, "192.0.2.%d, ", i)
	}
	return b.String() + "198.51.100.1]}\n"
}

// What is read of files that are still changing adds rules and removes none: it may be a
// part. Once the files are quiet it counts.
func TestPartsOfRulesAreNotActivated(t *testing.T) {
	read := func(a *App, o follow.Occasion) error {
		a.reloading.Lock()
		defer a.reloading.Unlock()
		return a.reload(o)
	}
	for _, row := range []struct{ name, before, text string }{
		{"a rule less", manyRules(10), manyRules(9)},
		{"another name", manyRules(10), strings.Replace(manyRules(10), "name: r3", "name: x3", 1)},
		{"a domain less", manyRules(10) + "---\ndomain: other\nlimits: []\n", manyRules(10)},
		{"a list that is shorter", manyRules(10) + denied(200), manyRules(10) + denied(199)},
		{"nothing", manyRules(10), "domain: api\nlimits: []\n"},
	} {
		for _, guard := range []config.Guard{config.GuardWarn, config.GuardOff} {
			a, _ := newApp(t, row.before, func(c *config.Config) { c.Reload.Guard = guard })
			start(t, a)
			was := a.engine.Rules()
			writeFile(t, a.options.Config.Rules[0], row.text)
			for range 3 {
				if err := read(a, follow.Occasion{Asked: true, Changing: true}); err == nil || a.engine.Rules() != was {
					t.Errorf("%s: a part was activated: %v", row.name, err)
				}
			}
			a.reloadIfChanged(follow.Occasion{})
			if failure := a.state.Load().Failure; a.engine.Rules() == was || failure != nil {
				t.Errorf("%s: not activated when quiet: %v", row.name, failure)
			}
		}
	}
	a, _ := newApp(t, manyRules(10))
	start(t, a)
	writeFile(t, a.options.Config.Rules[0], manyRules(11))
	if err := read(a, follow.Occasion{Changing: true}); err != nil {
		t.Errorf("a rule more: %v", err)
	}
	if n := a.engine.Rules().Stats().Rules; n != 11 {
		t.Errorf("%d rules, want 11", n)
	}
}

// After reloads there are the active rules and those of a rollback, and no others: each
// set may be large.
func TestReloadKeepsTwoGenerations(t *testing.T) {
	a, _ := newApp(t, manyRules(10))
	start(t, a)
	var sets []weak.Pointer[rules.Ruleset]
	var first []weak.Pointer[rules.Rule] // of each set
	for i := range 5 {
		if i > 0 {
			writeFile(t, a.options.Config.Rules[0], manyRules(10+i))
			if err := a.Reload(); err != nil {
				t.Fatal(err)
			}
		}
		for j := range 20 { // what is pooled has met the rules
			ask(t, a, "api", "/v1/check", fmt.Sprintf(`{"domain":"api","attributes":{"path":"/%d"}}`, j))
		}
		ask(t, a, "admin", "/rlconfig", "")
		metric(t, a, "headgate_rules")
		now := a.engine.Rules()
		sets, first = append(sets, weak.Make(now)), append(first, weak.Make(now.Rules()[0]))
	}
	// What was pooled is freed by the second collection.
	runtime.GC()
	runtime.GC()
	for i := range sets {
		if kept, want := sets[i].Value() != nil, i >= 3; kept != want {
			t.Errorf("the rules after %d of 4 reloads are kept: %v", i, kept)
		}
		if i < 3 && first[i].Value() != nil {
			t.Errorf("a rule from after %d of 4 reloads is kept", i)
		}
	}
	runtime.KeepAlive(a)
}

// TestStopWhileRulesAreRead: signals are handled, and counts saved, even if reading the
// rules hangs.
func TestStopWhileRulesAreRead(t *testing.T) {
	counts := filepath.Join(t.TempDir(), "counts")
	a, log := newApp(t, manyRules(10), func(c *config.Config) { c.Store.Memory.Snapshot = counts })
	stop, reload, done := make(chan os.Signal), make(chan os.Signal), make(chan error, 1)
	go func() { done <- a.Run(context.Background(), Signals{Stop: stop, Reload: reload}, nil) }()
	log.await(t, "rules loaded")
	a.reloading.Lock()
	defer a.reloading.Unlock()
	reload <- syscall.SIGHUP
	stop <- syscall.SIGTERM
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("still running")
	}
	if _, err := os.Stat(counts); err != nil {
		t.Errorf("counts are lost: %v", err)
	}
}

// TestSavesThatFail: the metrics show failed saves.
func TestSavesThatFail(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	a, _ := newApp(t, manyRules(1), func(c *config.Config) { c.Store.Memory.Snapshot = filepath.Join(folder, "counts") })
	start(t, a)
	if got := metric(t, a, `headgate_snapshot_saves_total{result="failure"}`); got != "0" {
		t.Errorf("before: %s", got)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if err := a.store.Save(); err == nil {
		t.Error("saved to nowhere")
	}
	if got := metric(t, a, `headgate_snapshot_saves_total{result="failure"}`); got != "1" {
		t.Errorf("after: %s", got)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := a.store.Save(); err != nil {
		t.Error(err)
	}
	if got := metric(t, a, `headgate_snapshot_saves_total{result="success"}`); got != "1" {
		t.Errorf("put right: %s", got)
	}
}
