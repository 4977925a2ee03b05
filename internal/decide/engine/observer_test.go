package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store/memory"
)

// witness records its calls.
type witness struct {
	name string
	said *[]string
}

func (w witness) Observe(_ context.Context, d *engine.Decided) {
	*w.said = append(*w.said, fmt.Sprintf("%s %v %d %d %d %d", w.name, d.Verdict.Allowed, d.Start, len(d.Parts), len(d.Verdict.Parts()), len(d.Verdict.Results())))
}

func TestObserversAreToldInOrder(t *testing.T) {
	var said []string
	e := engine.New(memory.New(), parse(t, twoLimits), engine.WithObserver(witness{"a", &said}), engine.WithObserver(witness{"b", &said}),
		engine.WithStart(func(int64, uint32) int64 {
			said = append(said, "begins")
			return 7
		}))
	r := request{"path": "/a", "user": "ann", "team": "red"}
	v, err := e.Decide(context.Background(), ask(r, 0))
	if err != nil {
		t.Fatal(err)
	}
	v.Release()
	all, err := e.Decide(context.Background(), engine.Query{Domain: "api", Parts: []engine.Part{{Request: r}, {Request: r}}})
	if err != nil {
		t.Fatal(err)
	}
	all.Release()
	want := []string{"begins", "a true 7 1 0 2", "b true 7 1 0 2", "begins", "a true 7 2 2 4", "b true 7 2 2 4"}
	if !slices.Equal(said, want) {
		t.Errorf("%q, want %q", said, want)
	}
}
