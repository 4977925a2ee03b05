package history_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/chaos/history"
)

// TestASettlementWithoutAnAnswerMayBeLate: a settlement that takes long to reach a sliding log
// refunds what came after it. Without one, nothing is refunded.
func TestASettlementWithoutAnAnswerMayBeLate(t *testing.T) {
	const from, second = int64(1_700_000_000_000_000), int64(1_000_000)
	log := history.Limit{Name: "log", Algorithm: history.SlidingLog, Count: 8, Period: 2 * second}
	op := func(id int, kind history.Kind, cost, at, left int64) history.Op {
		return history.Op{
			ID: id, Client: id, Kind: kind, Key: "k", Limits: []string{"log"}, Cost: cost, Call: from + at, Return: from + at + 100,
			Answer: &history.Answer{Allowed: true, Rule: "log", Limit: 8, Remaining: left, Reset: 2000},
		}
	}
	late := history.Op{
		ID: 2, Client: 2, Kind: history.Cancel, Key: "k", Limits: []string{"log"}, Of: 1, Was: 2, Call: from + second/10, Return: from + 9*second,
	}
	reserve := op(1, history.Reserve, 2, 0, 6)
	takes := []history.Op{op(3, history.Take, 1, 4*second/10, 5), op(4, history.Take, 1, 5*second/10, 4), op(5, history.Take, 1, 21*second/10, 7)}
	for name, x := range map[string]struct {
		ops    []history.Op
		faults int
	}{
		"with it":    {append([]history.Op{reserve, late}, takes...), 0},
		"without it": {append([]history.Op{reserve}, takes...), 1},
	} {
		h := &history.History{Limits: []history.Limit{log}, Slack: 2000, Reach: 70_000, Ops: x.ops}
		report, err := history.Check(h, history.Options{Patience: time.Minute, Pictures: t.TempDir()})
		if err != nil || len(report.Faults) != x.faults {
			t.Errorf("%s: faults %v, error %v, want %d", name, report.Faults, err, x.faults)
		}
	}
}

// TestAnEmptiedStoreMayGiveBackOthers: a reservation made before can still be settled, and may
// give back what others have taken since.
func TestAnEmptiedStoreMayGiveBackOthers(t *testing.T) {
	const from, second = int64(1_700_000_000_000_000), int64(1_000_000)
	window := history.Limit{Name: "fixed", Algorithm: history.FixedWindow, Count: 8, Period: 2 * second}
	reserve := history.Op{
		ID: 1, Client: 1, Kind: history.Reserve, Key: "k", Limits: []string{"fixed"}, Cost: 2, Call: from + 5000, Return: from + 6000,
		Answer: &history.Answer{Allowed: true, Rule: "fixed", Limit: 8, Remaining: 6, Reset: 1995},
	}
	again := history.Op{
		ID: 4, Client: 2, Kind: history.Take, Key: "k", Limits: []string{"fixed"}, Cost: 8, Call: from + 8000, Return: from + 9000,
		Answer: &history.Answer{Allowed: true, Rule: "fixed", Limit: 8, Remaining: 0, Reset: 1992},
	}
	more := again
	more.ID, more.Cost, more.Call, more.Return = 5, 2, from+second+200, from+second+300
	more.Answer = &history.Answer{Allowed: true, Rule: "fixed", Limit: 8, Remaining: 0, Reset: 999}
	emptied := history.Op{ID: 2, Client: 2, Kind: history.Emptied, Call: from + 5500, Return: from + 7000}
	cancel := history.Op{
		ID: 3, Client: 3, Kind: history.Cancel, Key: "k", Limits: []string{"fixed"}, Of: 1, Was: 2, Call: from + second, Return: from + second + 100,
		Answer: &history.Answer{Allowed: true},
	}
	for name, x := range map[string]struct {
		ops    []history.Op
		faults int
	}{
		"emptied":     {[]history.Op{reserve, emptied, again, cancel, more}, 0},
		"no cancel":   {[]history.Op{reserve, emptied, again, more}, 2},
		"not emptied": {[]history.Op{reserve, again, cancel, more}, 1},
	} {
		h := &history.History{Limits: []history.Limit{window}, Slack: 2000, Ops: x.ops}
		report, err := history.Check(h, history.Options{Patience: time.Minute, Pictures: t.TempDir()})
		if err != nil || len(report.Faults) != x.faults {
			t.Errorf("%s: faults %v, error %v, want %d", name, report.Faults, err, x.faults)
		}
	}
}
