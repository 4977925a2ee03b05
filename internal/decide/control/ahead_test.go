package control_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/control"
)

// TestATableClockThatWasAhead: bans and overrides made while the table's clock was ahead last
// as long as they were meant to, once it is right: in the process that made them, in another
// one, in one that starts later, and however often they are read. Those that a small
// correction of the clock explains stay as they are.
func TestATableClockThatWasAhead(t *testing.T) {
	for _, row := range []struct {
		name         string
		ahead, lasts time.Duration
		want         time.Duration // until the end, after the correction
	}{
		{"ten years", 10 * 365 * 24 * time.Hour, time.Hour, time.Hour},
		{"ten years, briefly", 10 * 365 * 24 * time.Hour, 5 * time.Second, 5 * time.Second},
		{"ten years, for long", 10 * 365 * 24 * time.Hour, 100 * 24 * time.Hour, 100 * 24 * time.Hour},
		{"a day", 24 * time.Hour, time.Minute, time.Minute},
		{"less than it lasts", 30 * time.Minute, time.Hour, 90 * time.Minute},
		{"less than a minute", 50 * time.Second, time.Second, 51 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			clock := newClock()
			table := newRegionTable(clock, "here")
			table.skew = row.ahead
			one, two := newNode(t, table, clock, 0), newNode(t, table, clock, 0)
			one.sync(t)
			two.sync(t)
			begin := clock.Now()
			for _, e := range []*control.Entry{one.entry("a", "ann", "", begin.Add(row.lasts)), one.entry("b", "ann", "50/minute", begin.Add(row.lasts))} {
				e.Created = begin
				one.put(t, e)
			}
			two.sync(t)
			clock.advance(time.Millisecond)
			table.skew = 0
			for range 3 {
				one.sync(t)
				two.sync(t)
			}
			clock.advance(row.want - 2*time.Millisecond)
			late := newNode(t, table, clock, 0)
			for _, n := range []*node{one, two, late} {
				n.sync(t)
				if bans, limits := n.Count(); bans != 1 || limits != 1 {
					t.Errorf("just before the end: %d bans and %d limits", bans, limits)
				}
			}
			clock.advance(time.Second)
			later := newNode(t, table, clock, 0)
			for _, n := range []*node{one, two, late, later} {
				n.sync(t)
				if bans, limits := n.Count(); bans != 0 || limits != 0 {
					t.Errorf("after the end: %d bans and %d limits", bans, limits)
				}
			}
		})
	}
}
