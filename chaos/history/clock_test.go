package history_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/chaos/history"
)

// TestAnUnknownCallHoldsTheClock: a call without an answer may have been done just before the
// clock went back. Time then stops where it was done, so that a bucket has drained until
// there. Without such a call it does not.
func TestAnUnknownCallHoldsTheClock(t *testing.T) {
	const from, second = int64(1_700_000_000_000_000), int64(1_000_000)
	bucket := history.Limit{Name: "token", Algorithm: history.TokenBucket, Count: 4, Period: second, Burst: 6}
	full := &history.Answer{Allowed: true, Rule: "token", Limit: 6, Remaining: 0, Reset: 1500}
	drained := &history.Answer{Allowed: true, Rule: "token", Limit: 6, Remaining: 2, Reset: 3500}
	take := func(id int, n, at, until int64, a *history.Answer) history.Op {
		return history.Op{ID: id, Client: id, Kind: history.Take, Key: "k", Limits: []string{"token"}, Cost: n, Call: from + at, Return: from + until, Answer: a}
	}
	set := from + 1_400_000
	first := take(1, 6, 0, 100, full)
	unknown := take(2, 1, second, 9*second, nil)
	back := history.Op{Kind: history.Set, Client: 9, Call: set, Return: set, Since: set + 2000}
	last := take(3, 1, 1_500_000, 1_500_100, drained)
	for name, x := range map[string]struct {
		ops    []history.Op
		faults int
	}{
		"with it":    {[]history.Op{first, unknown, back, last}, 0},
		"without it": {[]history.Op{first, back, last}, 1},
	} {
		h := &history.History{Limits: []history.Limit{bucket}, Slack: 2000, Ops: x.ops, Clock: []history.Shift{
			{From: 0}, {From: set, Least: -3 * second, Most: 0}, {From: set + 10, Least: -3 * second, Most: -3 * second},
		}}
		report, err := history.Check(h, history.Options{Patience: time.Minute, Pictures: t.TempDir()})
		if err != nil || len(report.Faults) != x.faults {
			t.Errorf("%s: faults %v, error %v, want %d", name, report.Faults, err, x.faults)
		}
	}
}
