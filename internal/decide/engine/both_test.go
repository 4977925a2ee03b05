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

func (w witness) Deciding(int64, uint32) int64 {
	*w.said = append(*w.said, w.name+" begins")
	return 7
}

func (w witness) Decided(_ context.Context, m engine.Mark, _ engine.Query, v engine.Verdict, _ error) {
	*w.said = append(*w.said, fmt.Sprintf("%s %v %d %d", w.name, v.Allowed, m.Start, len(v.Results())))
}

func (w witness) DecidedAll(_ context.Context, m engine.Mark, _ engine.MultiQuery, v engine.MultiVerdict, _ error) {
	*w.said = append(*w.said, fmt.Sprintf("%s all %v %d %d", w.name, v.Allowed, m.Start, len(v.Parts())))
}

func TestBoth(t *testing.T) {
	var said []string
	e := engine.New(memory.New(), parse(t, twoLimits), engine.WithObserver(engine.Both(witness{"a", &said}, witness{"b", &said})))
	r := request{"path": "/a", "user": "ann", "team": "red"}
	v, err := e.Decide(context.Background(), ask(r, 0))
	if err != nil {
		t.Fatal(err)
	}
	v.Release()
	all, err := e.DecideAll(context.Background(), engine.MultiQuery{Domain: "api", Parts: []engine.Part{{Request: r}, {Request: r}}})
	if err != nil {
		t.Fatal(err)
	}
	all.Release()
	want := []string{"a begins", "a true 7 2", "b true 7 2", "a begins", "a all true 7 2", "b all true 7 2"}
	if !slices.Equal(said, want) {
		t.Errorf("%q, want %q", said, want)
	}
}
