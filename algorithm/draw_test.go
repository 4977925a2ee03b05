package algorithm

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

func drawAt(t *testing.T, limit headgate.Limit, s *State, at, n int64, age time.Duration) store.Decision {
	t.Helper()
	return Step(limit.Rule(), s, at, Request{Kind: store.KindDraw, Cost: n, Duration: age}).Decision
}

// TestDrawsShrinkToOne: each draw takes at most a quarter of what is left, so several
// processes share what there is, and the last tokens go one by one.
func TestDrawsShrinkToOne(t *testing.T) {
	limit, s := headgate.PerHour(20).WithAlgorithm(store.FixedWindow), State{}
	for i, want := range []int64{5, 3, 3, 2, 1, 1, 1, 1, 1, 1, 1, 0} {
		d := drawAt(t, limit, &s, t0, 100, time.Minute)
		if d.Granted != want || d.Allowed != (want > 0) {
			t.Fatalf("draw %d: granted %d, want %d", i+1, d.Granted, want)
		}
		if want == 0 && d.RetryAfter != time.Hour {
			t.Errorf("refused until %s, want the end of the window", d.RetryAfter)
		}
	}
}

// TestDrawEndsWithItsWindow: what was drawn in a window must not be used in the next.
func TestDrawEndsWithItsWindow(t *testing.T) {
	for _, c := range []struct {
		limit headgate.Limit
		after time.Duration // since the start of an hour
		want  time.Duration
	}{
		{headgate.PerHour(100).WithAlgorithm(store.FixedWindow), 59*time.Minute + 50*time.Second, 10 * time.Second},
		{headgate.PerHour(100).WithAlgorithm(store.FixedWindow), 0, time.Minute},
		{headgate.PerHour(100).WithAlgorithm(store.FixedWindow).WithAnchor(store.AnchorFirstRequest), 59*time.Minute + 50*time.Second, time.Minute},
		{headgate.PerCalendar(100, store.Day, time.UTC), 24*time.Hour - time.Second, time.Second},
		{headgate.PerHour(100).WithAlgorithm(store.SlidingWindow), 59*time.Minute + 59*time.Second, time.Second},
		{headgate.PerHour(100).WithAlgorithm(store.SlidingBuckets), 30*time.Minute - time.Second, time.Second},
		{headgate.PerHour(100).WithAlgorithm(store.SlidingLog), 59*time.Minute + 59*time.Second, time.Minute},
		{headgate.PerHour(100), 59*time.Minute + 59*time.Second, time.Minute},
	} {
		var s State
		at := int64(t0) + int64(c.after/time.Microsecond)
		if d := drawAt(t, c.limit, &s, at, 8, time.Minute); d.Delay != c.want || d.Granted != 8 {
			t.Errorf("%s, %s into it: %s, want usable for %s", c.limit, c.after, show(Result{Decision: d}), c.want)
		}
	}
}

// TestDrawFromALogForgetsNothing: what is drawn counts from its last possible use on,
// but what still counts now must not be forgotten earlier for that.
func TestDrawFromALogForgetsNothing(t *testing.T) {
	limit, s := headgate.PerSecond(8).WithAlgorithm(store.SlidingLog), State{}
	const ms = int64(time.Millisecond / time.Microsecond)
	Step(limit.Rule(), &s, t0, Request{Cost: 4})
	if d := drawAt(t, limit, &s, t0+950*ms, 9, 100*time.Millisecond); d.Granted != 1 || d.Remaining != 3 {
		t.Fatalf("drew %d with %d left, want 1 and 3", d.Granted, d.Remaining)
	}
	if got := Step(limit.Rule(), &s, t0+960*ms, Request{Cost: 4}); got.Allowed {
		t.Error("the first four no longer count, 40ms early")
	}
	if got := Step(limit.Rule(), &s, t0+1000*ms, Request{Cost: 7}); !got.Allowed {
		t.Error("the first four still count after a period")
	}
	if got := Step(limit.Rule(), &s, t0+2049*ms, Request{Kind: store.KindPeek, Cost: 8}); got.Allowed || got.RetryAfter != time.Millisecond {
		t.Errorf("what was drawn may have been used at 1.05s: %s", show(got))
	}
}

// TestDrawIsRefusedWhereItCannotBeExact: by queues, limits of concurrency, and windows
// that count refusals.
func TestDrawIsRefusedWhereItCannotBeExact(t *testing.T) {
	for _, limit := range []headgate.Limit{
		headgate.PerSecond(9).WithAlgorithm(store.LeakyBucket), headgate.Concurrent(9), headgate.PerSecond(0),
		headgate.PerSecond(9).WithAlgorithm(store.SlidingWindow).WithRefusalsCounted(),
	} {
		var s State
		d := drawAt(t, limit, &s, t0, 1, time.Second)
		if d.Allowed || d.RetryAfter != store.Never || limit.Rule().CanDraw() || !isZero(&s) {
			t.Errorf("%s: %s", limit, show(Result{Decision: d}))
		}
	}
}

// TestDrawLeavesCredit: credit is for requests that the limit refuses. A refused draw
// says when the limit itself has something again.
func TestDrawLeavesCredit(t *testing.T) {
	limit, s := headgate.PerSecond(4), State{}
	Step(limit.Rule(), &s, t0, Request{Cost: 4})
	Step(limit.Rule(), &s, t0, Request{Kind: store.KindGrant, Cost: 5, Duration: time.Hour})
	if d := drawAt(t, limit, &s, t0, 3, time.Second); d.Allowed || d.Remaining != 5 || d.RetryAfter != 250*time.Millisecond {
		t.Errorf("%s", show(Result{Decision: d}))
	}
}

// TestReturnedDrawIsAsIfNeverMade: of a draw of 10 from a bucket, 4 are used and 6 come
// back 2 tokens later; the bucket has drained as if only 4 had been taken.
func TestReturnedDrawIsAsIfNeverMade(t *testing.T) {
	limit := headgate.PerSecond(10).WithBurst(100)
	var drawn, used State
	second := int64(time.Second / time.Microsecond)
	Step(limit.Rule(), &drawn, t0, Request{Cost: 50})
	d := drawAt(t, limit, &drawn, t0, 10, time.Second)
	Step(limit.Rule(), &drawn, t0+second/5, Request{Kind: store.KindRefund, Cost: 6, CountsUntil: d.CountsUntil})
	Step(limit.Rule(), &used, t0, Request{Cost: 54})
	peek := Request{Kind: store.KindPeek, Cost: 100}
	got, want := Step(limit.Rule(), &drawn, t0+second/5, peek), Step(limit.Rule(), &used, t0+second/5, peek)
	if got != want {
		t.Errorf("\n got %s\nwant %s", show(got), show(want))
	}
}
