package history_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/chaos/history"
)

// TestBounds: errors that need no order are found without one.
func TestBounds(t *testing.T) {
	const s, ms = 1_000_000, 1000
	log := history.Limit{Name: "log", Algorithm: history.SlidingLog, Count: 2, Period: s}
	bucket := history.Limit{Name: "bucket", Algorithm: history.TokenBucket, Count: 2, Period: s, Burst: 2}
	fixed := history.Limit{Name: "fixed", Algorithm: history.FixedWindow, Count: 2, Period: s}
	type call struct {
		at      int64
		allowed bool
		retry   int64
	}
	for name, c := range map[string]struct {
		limit history.Limit
		calls []call
		want  string
		lost  int // until when something may be forgotten
	}{
		"three of two in a log": {log, []call{{0, true, 0}, {900 * ms, true, 0}, {990 * ms, true, 0}}, "admitted 3, not 2", 0},
		"two and two":           {log, []call{{0, true, 0}, {1, true, 0}, {1010 * ms, true, 0}, {1020 * ms, true, 0}}, "", 0},
		"four of a bucket":      {bucket, []call{{0, true, 0}, {1, true, 0}, {510 * ms, true, 0}, {900 * ms, true, 0}}, "admitted 4, not 3", 0},
		"a bucket refills":      {bucket, []call{{0, true, 0}, {1, true, 0}, {510 * ms, true, 0}, {1010 * ms, true, 0}}, "", 0},
		"three in a window":     {fixed, []call{{0, true, 0}, {100 * ms, true, 0}, {900 * ms, true, 0}}, "admitted 3, not 2", 0},
		"around its edge":       {fixed, []call{{900 * ms, true, 0}, {990 * ms, true, 0}, {1010 * ms, true, 0}}, "", 0},
		"refused for nothing":   {log, []call{{0, true, 0}, {500 * ms, false, 500}}, "#2 was refused, although with it there were at most 2", 0},
		"a promise kept":        {log, []call{{0, true, 0}, {10 * ms, true, 0}, {500 * ms, false, 500}, {1010 * ms, true, 0}}, "", 0},
		"a promise broken":      {log, []call{{0, true, 0}, {10 * ms, true, 0}, {500 * ms, false, 500}, {1004 * ms, false, 8}}, "#3 was told to retry after 500 ms and refused again as #4", 0},
		// #3 was a take of the new primary, #4 is answered by the old one.
		"broken by a fail-over": {log, []call{{0, true, 0}, {10 * ms, true, 0}, {480 * ms, true, 0}, {500 * ms, false, 500}, {1004 * ms, false, 8}}, "", 800 * ms},
	} {
		h := history.History{Limits: []history.Limit{c.limit}}
		for i, x := range c.calls {
			at := 1_700_000_000*s + x.at
			h.Ops = append(h.Ops, history.Op{
				ID: i + 1, Kind: history.Take, Key: "k", Limits: []string{c.limit.Name}, Cost: 1, Call: at, Return: at + ms,
				Answer: &history.Answer{Allowed: x.allowed, Rule: c.limit.Name, Limit: 2, Retry: x.retry},
			})
		}
		if c.lost > 0 {
			at := 1_700_000_000 * s
			h.Ops = append(h.Ops, history.Op{ID: len(h.Ops) + 1, Kind: history.Lost, Since: int64(at), Call: int64(at + c.lost/2), Return: int64(at + c.lost)})
		}
		report, err := history.Check(&h, history.Options{Patience: patience})
		if err != nil {
			t.Fatal(err)
		}
		found := ""
		for _, f := range report.Faults {
			if !strings.Contains(f.What, "no order") { // the answers have no numbers here
				found += f.What
			}
		}
		if c.want == "" && found != "" || !strings.Contains(found, c.want) {
			t.Errorf("%s: found %q, want %q", name, found, c.want)
		}
	}
}

// TestSaveLoad: a saved history is the same when loaded.
func TestSaveLoad(t *testing.T) {
	h := newWorld(t, 1, lostUpdate).run()
	file := t.TempDir() + "/history.jsonl"
	if err := h.Save(file); err != nil {
		t.Fatal(err)
	}
	again, err := history.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	one, _ := history.Check(h, history.Options{Patience: patience})
	other, _ := history.Check(again, history.Options{Patience: patience, Pictures: t.TempDir()})
	if len(one.Faults) == 0 || len(one.Faults) != len(other.Faults) || one.Ops != other.Ops {
		t.Errorf("found %v, and saved %v", one, other)
	}
}
