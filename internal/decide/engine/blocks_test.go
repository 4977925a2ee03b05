package engine_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store/blocks"
	"github.com/headgate/headgate/store/memory"
)

const inBlocks = `
domain: api
limits:
  - {name: user, key: [user], rate: 1000/hour, algorithm: fixed_window, anchor: first_request, key_missing: skip, sync: blocks}
  - {name: seen, key: [seen], rate: 100/hour, algorithm: fixed_window, anchor: first_request, key_missing: skip, sync: blocks, mode: shadow}
  - {name: some, key: [some], rate: 100/hour, algorithm: fixed_window, anchor: first_request, key_missing: skip, sync: blocks, percent: 50}
`

// passed asks n times for a key with one part, and returns how many were allowed.
func passed(t *testing.T, e *engine.Engine, name, part string, n int) (allowed int) {
	t.Helper()
	for range n {
		if decide(t, e, ask(request{name: part}, 0)).Allowed {
			allowed++
		}
	}
	return allowed
}

// TestBlocksUnderTheEngine: what stands before and after the store works with blocks as
// without: bans, overrides, a reload, shadow mode and a percentage.
func TestBlocksUnderTheEngine(t *testing.T) {
	rs := parse(t, inBlocks)
	store := blocks.New(memory.New(memory.WithClock(func() time.Time { return time.UnixMicro(at(0)) })), blocks.Options{})
	defer func() { _ = store.Close() }()
	e := engine.New(store, rs)

	if n := passed(t, e, "user", "ann", 500); n != 500 {
		t.Fatalf("%d of 500 passed", n)
	}
	if s := store.Stats(); len(s) != 1 || s[0].Admitted == 0 {
		t.Fatalf("nothing was decided from blocks: %+v", s)
	}
	// A ban needs no store.
	e.SetExceptions(engine.NewExceptions([]engine.Exception{banned(rs, "user", "ann", 10)}, at(0)))
	if n := passed(t, e, "user", "ann", 10); n != 0 {
		t.Errorf("%d passed while banned", n)
	}
	// An override is another limit: of 600, 500 are used, and what is held besides.
	e.SetExceptions(engine.NewExceptions([]engine.Exception{with(t, rs, "user", "ann", "600/hour", 10)}, at(0)))
	if n := passed(t, e, "user", "ann", 300); n > 100 {
		t.Errorf("%d passed under an override of 600, after 500", n)
	}
	// After a reload the rules are others, with the same numbers, and find the counts.
	e.SetExceptions(nil)
	e.SetRules(parse(t, inBlocks))
	if n := passed(t, e, "user", "bob", 1200); n != 1000 {
		t.Errorf("%d of 1000 passed after a reload", n)
	}
	// Shadow mode lets pass what it would refuse, and so does a rule for half of the keys.
	if n := passed(t, e, "seen", "ann", 300); n != 300 {
		t.Errorf("%d of 300 passed in shadow mode", n)
	}
	both := map[bool]int{}
	for i := range 20 {
		n := passed(t, e, "some", string(rune('a'+i)), 200)
		if n != 100 && n != 200 {
			t.Errorf("%d of 200 passed for a key", n)
		}
		both[n == 100]++
	}
	if both[true] == 0 || both[false] == 0 {
		t.Errorf("%d keys limited, %d not, want about half", both[true], both[false])
	}
}
