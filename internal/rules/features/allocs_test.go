//go:build !race

// Under the race detector, sync.Pool drops items on purpose.

package features_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store/memory"
)

// To ask whether rules hold costs a decision no memory.
func TestRuleOfSomeDaysAllocatesNothing(t *testing.T) {
	e := engine.New(memory.New(), rulesWith(t, strings.ReplaceAll(tuesdays, "/day", "00_000/day")))
	q := engine.Query{Domain: "api", Part: engine.Part{Request: user("ann"), Cost: 1}, At: noon("2026-12-01")}
	if got := testing.AllocsPerRun(1000, func() {
		v, err := e.Decide(t.Context(), q)
		if err != nil || !v.Allowed || len(v.Results()) != 2 {
			t.Fatalf("%+v, %v", v, err)
		}
		v.Release()
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
