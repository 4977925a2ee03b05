package headgate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// TestBlockAge: how long a block of each limit may be used, and what that admits above
// the limit.
func TestBlockAge(t *testing.T) {
	five := store.Blocks{MaxAge: time.Second, MaxOver: 0.05}
	none := store.Blocks{MaxAge: 50 * time.Millisecond}
	for _, c := range []struct {
		limit headgate.Limit
		age   time.Duration
		over  int64
		burst int64
	}{
		{headgate.PerSecond(1000), 0, 0, 1000},
		{headgate.LimitOf(headgate.PerSecond(1000).Rule().InBlocks(five)), 50 * time.Millisecond, 50, 1000},
		{headgate.LimitOf(headgate.PerSecond(1000).WithBurst(10_000).Rule().InBlocks(five)), 500 * time.Millisecond, 500, 10_000},
		{headgate.LimitOf(headgate.PerSecond(1000).Rule().InBlocks(five)).WithBurst(10_000), 500 * time.Millisecond, 500, 10_000},
		{headgate.LimitOf(headgate.PerSecond(1000).WithBurst(100_000).Rule().InBlocks(five)), time.Second, 1000, 100_000},
		{headgate.LimitOf(headgate.PerSecond(1000).Rule().InBlocks(none)), 50 * time.Millisecond, 0, 950},
		{headgate.LimitOf(headgate.PerSecond(1000).Rule().InBlocks(none)).WithBurst(500), 50 * time.Millisecond, 0, 450},
		{headgate.LimitOf(headgate.PerSecond(1000).WithBurst(500).Rule().InBlocks(none)).WithName("n").WithName("m"), 50 * time.Millisecond, 0, 450},
		{headgate.LimitOf(headgate.PerSecond(1000).WithBurst(500).Rule().InBlocks(none).Share(0.5)), 50 * time.Millisecond, 0, 225},
		{headgate.LimitOf(headgate.PerSecond(10).WithBurst(10).Rule().InBlocks(none).Share(0.1)), 0, 0, 1},
		{headgate.LimitOf(headgate.PerSecond(1000).WithRefillEvery(100 * time.Millisecond).Rule().InBlocks(five)), 50 * time.Millisecond, 100, 1000},
		{headgate.LimitOf(headgate.PerMinute(1000).WithAlgorithm(headgate.FixedWindow).Rule().InBlocks(five)), time.Second, 0, 1000},
		{headgate.LimitOf(headgate.Per(1000, time.Millisecond).WithAlgorithm(headgate.SlidingWindow).Rule().InBlocks(five)), time.Millisecond, 0, 1000},
		{headgate.LimitOf(headgate.PerSecond(1000).WithAlgorithm(headgate.SlidingLog).Rule().InBlocks(five)), 50 * time.Millisecond, 0, 1000},
		{headgate.LimitOf(headgate.PerCalendar(1000, headgate.Day, nil).Rule().InBlocks(five)), time.Second, 0, 1000},
		{headgate.LimitOf(headgate.PerSecond(0).Rule().InBlocks(five)), 0, 0, 0},
	} {
		if c.limit.Validate() != nil || c.limit.Rule().BlockAge() != c.age || c.limit.Rule().BlockOver() != c.over || c.limit.Burst() != c.burst {
			t.Errorf("%s: %v, age %s over %d burst %d; want %s, %d, %d", c.limit, c.limit.Validate(),
				c.limit.Rule().BlockAge(), c.limit.Rule().BlockOver(), c.limit.Burst(), c.age, c.over, c.burst)
		}
	}
	if got := headgate.LimitOf(headgate.PerSecond(1000).Rule().InBlocks(five)).String(); got != "1000/second token_bucket in blocks up to 50ms old" {
		t.Error(got)
	}
}

// TestBlocksAreRefused: where they cannot keep the limit's promise.
func TestBlocksAreRefused(t *testing.T) {
	good := store.Blocks{MaxAge: time.Second, MaxOver: 0.05}
	for _, c := range []struct {
		limit headgate.Limit
		want  string
	}{
		{headgate.LimitOf(headgate.PerSecond(9).WithAlgorithm(headgate.LeakyBucket).Rule().InBlocks(good)), "cannot be used in blocks"},
		{headgate.LimitOf(headgate.PerSecond(9).Rule().InBlocks(good)).WithAlgorithm(headgate.LeakyBucket), "cannot be used in blocks"},
		{headgate.LimitOf(headgate.Concurrent(9).Rule().InBlocks(good)), "cannot be used in blocks"},
		{headgate.LimitOf(headgate.PerSecond(9).WithAlgorithm(headgate.FixedWindow).WithRefusalsCounted().Rule().InBlocks(good)), "cannot be used in blocks"},
		{headgate.LimitOf(headgate.PerSecond(9).Rule().InBlocks(store.Blocks{})), "the age of a block"},
		{headgate.LimitOf(headgate.PerSecond(9).Rule().InBlocks(store.Blocks{MaxAge: time.Nanosecond})), "the age of a block"},
		{headgate.LimitOf(headgate.PerSecond(9).Rule().InBlocks(store.Blocks{MaxAge: time.Second, MaxOver: 1.1})), "above a burst"},
		{headgate.LimitOf(headgate.PerSecond(9).Rule().InBlocks(store.Blocks{MaxAge: time.Second, MaxOver: -0.1})), "above a burst"},
		{headgate.LimitOf(headgate.PerSecond(9).Rule().InBlocks(store.Blocks{MaxAge: time.Second})), "leaves nothing"},
	} {
		if err := c.limit.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.limit, err, c.want)
		}
	}
}

// TestBlocksShareCounts: a limit counts the same keys with blocks and without, so that
// they can be switched on and off.
func TestBlocksShareCounts(t *testing.T) {
	exact := headgate.PerSecond(1000)
	blocks := headgate.LimitOf(exact.Rule().InBlocks(store.Blocks{MaxAge: time.Second, MaxOver: 0.05}))
	a, b := store.Op{Key: "k", Rule: exact.Rule()}, store.Op{Key: "k", Rule: blocks.Rule()}
	nameA, markA := a.Space()
	nameB, markB := b.Space()
	if nameA != nameB || markA != markB || exact.Equal(blocks) {
		t.Errorf("%q %d, %q %d", nameA, markA, nameB, markB)
	}
}
