package engine_test

import (
	"context"
	"runtime"
	"testing"
	"weak"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// ruled fails if it is told of a decision without its rules.
type ruled struct{ t *testing.T }

func (r ruled) Observe(_ context.Context, d *engine.Decided) {
	if d.Rules == nil {
		r.t.Error("a report without rules")
	}
}

// Observers know the rules, also if they are told twice; but a verdict that is held, as by a stream
// that stays open, does not keep the rules of its time after a reload.
func TestHeldVerdictKeepsNoRules(t *testing.T) {
	const text = "domain: api\nlimits: [{name: user, key: [user], rate: 1/hour}]\n"
	rs := parse(t, text)
	old := weak.Make(rs)
	e := engine.New(memory.New(), rs, engine.WithObserver(ruled{t}))
	q := engine.Query{Domain: "api", Part: engine.Part{Request: request{"user": "ann"}, Cost: 1}, At: at(0)}
	q.Kind = store.KindPeek
	v := decide(t, e, q)
	e.ReportTake(t.Context(), q, v)
	e.SetRules(parse(t, text))
	for range 3 {
		runtime.GC()
	}
	if old.Value() != nil {
		t.Error("the rules of before are still in memory")
	}
	v.Release()
}
