package app_test

import (
	"fmt"
	"runtime"
	"testing"
	"weak"

	"github.com/headgate/headgate/internal/rules"
)

// After reloads there are the active rules and those of a rollback, and no others: each
// set may be large.
func TestReloadKeepsTwoGenerations(t *testing.T) {
	f := unwatched(t, manyRules(10), hello)
	var sets []weak.Pointer[rules.Ruleset]
	var first []weak.Pointer[rules.Rule] // of each set
	for i := range 5 {
		if i > 0 {
			writeFile(t, f.config.Rules[0], manyRules(10+i))
			if err := f.Reload(); err != nil {
				t.Fatal(err)
			}
		}
		for j := range 20 { // what is pooled has met the rules
			f.post(t, "/v1/check", fmt.Sprintf(`{"domain":"api","attributes":{"path":"/%d"}}`, j))
			f.get(t, f.proxyURL(fmt.Sprintf("/%d", j)))
		}
		f.get(t, f.adminURL("/rlconfig"))
		f.metric(t, "headgate_rules")
		now := f.Engine().Rules()
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
	runtime.KeepAlive(f)
}
