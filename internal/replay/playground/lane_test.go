package playground_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/internal/replay/playground"
	"github.com/headgate/headgate/store"
)

const (
	t0     = 1_767_225_600_000_000 // 2026-01-01 00:00 UTC
	second = 1_000_000
)

func lane(t *testing.T, limit headgate.Limit) *playground.Lane {
	t.Helper()
	var l playground.Lane
	if err := l.Set(limit); err != nil {
		t.Fatal(err)
	}
	return &l
}

// TestBooksOfTheEdge: 5 per minute, 5 requests at 59 s and 5 at 60 s.
func TestBooksOfTheEdge(t *testing.T) {
	rows := []struct {
		limit headgate.Limit
		want  playground.Counts
	}{
		{headgate.PerMinute(5).WithAlgorithm(headgate.FixedWindow), playground.Counts{Allowed: 10, TooMany: 5, Peak: 10}},
		{headgate.PerMinute(5).WithAlgorithm(headgate.SlidingWindow), playground.Counts{Allowed: 5, Refused: 5, Peak: 5}},
		{headgate.PerMinute(5).WithAlgorithm(headgate.SlidingLog), playground.Counts{Allowed: 5, Refused: 5, Peak: 5}},
		{headgate.PerMinute(5).WithAlgorithm(headgate.SlidingBuckets), playground.Counts{Allowed: 5, Refused: 5, Peak: 5}},
		{headgate.PerMinute(5), playground.Counts{Allowed: 5, Refused: 5, Peak: 5}},
		{headgate.PerMinute(5).WithBurst(8), playground.Counts{Allowed: 8, Refused: 2, TooMany: 3, Peak: 8}},
		{headgate.PerMinute(5).WithBurst(2), playground.Counts{Allowed: 2, Refused: 8, TooStrict: 8, Peak: 2}},
	}
	for _, row := range rows {
		l := lane(t, row.limit)
		for i := range int64(10) {
			l.Hit(t0+(59+i/5)*second, 1)
		}
		if got := l.Counts(); got != row.want {
			t.Errorf("%s: %+v, want %+v", row.limit, got, row.want)
		}
	}
}

func TestAWindowThatIsNotEvenIsTooStrict(t *testing.T) {
	l := lane(t, headgate.PerMinute(6).WithAlgorithm(headgate.SlidingWindow))
	for range 6 {
		l.Hit(t0, 1) // all at the beginning of a minute, gone at its end
	}
	out := l.Hit(t0+61*second, 2)
	if out.Allowed || out.Verdict != playground.TooStrict {
		t.Errorf("%+v", out)
	}
}

// TestBooksAgainstAList compares with sums over a plain list of all that passed.
func TestBooksAgainstAList(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, a := range store.Algorithms() {
		limit := headgate.Per(8, 10*time.Second).WithAlgorithm(a)
		l := lane(t, limit)
		type pass struct{ at, cost int64 }
		var passed []pass
		var want playground.Counts
		at := int64(t0)
		for range 3000 {
			at += rng.Int64N(2 * second)
			cost := 1 + rng.Int64N(3)
			sum := cost
			for _, p := range passed {
				if at < p.at+10*second {
					sum += p.cost
				}
			}
			out := l.Hit(at, cost)
			switch {
			case out.Allowed:
				want.Allowed++
				want.Peak = max(want.Peak, sum)
				passed = append(passed, pass{at, cost})
				if sum > 8 {
					want.TooMany++
				}
			default:
				want.Refused++
				if sum <= 8 {
					want.TooStrict++
				}
			}
		}
		if got := l.Counts(); got != want {
			t.Errorf("%s: %+v, want %+v", limit, got, want)
		}
		if want.Allowed == 0 || want.Refused == 0 {
			t.Errorf("%s: the traffic tries nothing: %+v", limit, want)
		}
		if a == headgate.SlidingLog && want.TooMany+want.TooStrict > 0 {
			t.Errorf("the log itself is wrong: %+v", want)
		}
	}
}

func TestAChangedLimitKeepsTheUse(t *testing.T) {
	for _, a := range store.Algorithms() {
		l := lane(t, headgate.PerMinute(10).WithAlgorithm(a))
		for range 6 {
			l.Hit(t0, 1)
		}
		if err := l.Set(headgate.PerMinute(8).WithAlgorithm(a)); err != nil {
			t.Fatal(err)
		}
		if got := l.Peek(t0, 1).Remaining; got != 2 {
			t.Errorf("%s: %d left of 8 after 6", a, got)
		}
		if err := l.Set(headgate.Per(-1, time.Second)); !errors.Is(err, headgate.ErrInvalidLimit) {
			t.Errorf("%s: %v", a, err)
		}
		if got := l.Limit().N(); got != 8 {
			t.Errorf("%s: an invalid limit holds: %d", a, got)
		}
	}
}

func TestUsed(t *testing.T) {
	rows := []struct {
		algorithm headgate.Algorithm
		after     time.Duration
		want      float64
	}{
		{headgate.TokenBucket, 0, 4},
		{headgate.TokenBucket, 7500 * time.Millisecond, 3.5},
		{headgate.LeakyBucket, time.Minute, 0},
		{headgate.FixedWindow, 59 * time.Second, 4},
		{headgate.FixedWindow, time.Minute, 0},
		{headgate.SlidingLog, time.Minute - time.Microsecond, 4},
		{headgate.SlidingWindow, 90 * time.Second, 2},
		{headgate.SlidingBuckets, 60*time.Second + 500*time.Millisecond, 2},
	}
	for _, row := range rows {
		l := lane(t, headgate.PerMinute(4).WithAlgorithm(row.algorithm))
		for range 4 {
			l.Hit(t0, 1)
		}
		if got := l.Used(t0 + row.after.Microseconds()); math.Abs(got-row.want) > 1e-9 {
			t.Errorf("%s after %s: %v, want %v", row.algorithm, row.after, got, row.want)
		}
	}
}

// TestUsedFallsInSteps: between two steps nothing changes.
func TestUsedFallsInSteps(t *testing.T) {
	l := lane(t, headgate.PerMinute(4).WithRefillEvery(15*time.Second))
	l.Hit(t0, 4)
	for _, row := range []struct {
		after time.Duration
		want  float64
	}{{0, 4}, {15*time.Second - time.Microsecond, 4}, {15 * time.Second, 3}, {29 * time.Second, 3}, {time.Minute, 0}} {
		if got := l.Used(t0 + row.after.Microseconds()); got != row.want {
			t.Errorf("after %s: %v, want %v", row.after, got, row.want)
		}
	}
}

func TestBytes(t *testing.T) {
	want := map[headgate.Algorithm]int64{
		headgate.TokenBucket: 24, headgate.LeakyBucket: 24, headgate.FixedWindow: 24,
		headgate.SlidingLog: 8 * (4 + 2 + 18), headgate.SlidingWindow: 32, headgate.SlidingBuckets: 8 * (3 + 8),
	}
	for _, a := range store.Algorithms() {
		l := lane(t, headgate.PerMinute(50).WithAlgorithm(a))
		for i := range int64(60) {
			l.Hit(t0+i, 1)
		}
		if got := l.Bytes(); got != want[a] {
			t.Errorf("%s: %d bytes, want %d", a, got, want[a])
		}
	}
}

func TestResetForgetsAllButTheLimit(t *testing.T) {
	l := lane(t, headgate.PerMinute(3).WithAlgorithm(headgate.SlidingLog))
	for range 5 {
		l.Hit(t0, 1)
	}
	l.Reset()
	if l.Counts() != (playground.Counts{}) || l.Peek(t0, 1).Remaining != 3 || len(l.Spans(t0)) != 0 {
		t.Errorf("%+v, %v", l.Counts(), l.Peek(t0, 1))
	}
}

func TestSpecLeavesOutWhatIsNotTheAlgorithms(t *testing.T) {
	for _, a := range store.Algorithms() {
		limit := playground.Spec{
			Algorithm: a, N: 5, Period: time.Minute, Burst: 9, Anchor: headgate.AnchorFirstRequest,
			Buckets: 12, Edge: headgate.EdgeStrict, CountDenied: true, RefillEvery: 15 * time.Second,
		}.Limit()
		if err := limit.Validate(); err != nil {
			t.Errorf("%s: %v", a, err)
		}
		if (limit.Rule().RefillEvery != 0) != (a == headgate.TokenBucket) {
			t.Errorf("%s in steps of %dµs", a, limit.Rule().RefillEvery)
		}
		want := int64(5)
		if a <= headgate.LeakyBucket {
			want = 9
		}
		if limit.Burst() != want {
			t.Errorf("%s: capacity %d", limit, limit.Burst())
		}
	}
}

func TestDoIsTheStep(t *testing.T) {
	l, limit := lane(t, headgate.PerMinute(3)), headgate.PerMinute(3)
	var s algorithm.State
	for _, kind := range []store.Kind{store.KindTake, store.KindCharge, store.KindPeek, store.KindRefund} {
		req := algorithm.Request{Kind: kind, Cost: 2}
		if got, want := l.Do(t0, req), algorithm.Step(limit.Rule(), &s, t0, req); got != want {
			t.Errorf("%s: %+v, want %+v", kind, got, want)
		}
	}
}
