package headgate_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// outage is a memory store that can be cut off.
type outage struct {
	store.Store
	down bool
}

var errDown = errors.Join(headgate.ErrUnavailable, errors.New("down"))

func (o *outage) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		if o.down {
			return errDown
		}
		return store.ExecuteAll(ctx, o.Store, ops, out, mode)
	})
}

func TestShare(t *testing.T) {
	berlin := time.FixedZone("Berlin", 3600)
	for _, tt := range []struct {
		limit headgate.Limit
		share float64
		want  headgate.Limit
	}{
		{headgate.PerMinute(100), 0.25, headgate.PerMinute(25)},
		{headgate.PerMinute(100), 1, headgate.PerMinute(100)},
		{headgate.PerMinute(10), 0.25, headgate.PerMinute(2)}, // 4 × 2 ≤ 10
		{headgate.PerMinute(2), 0.25, headgate.PerMinute(1)},  // at least 1
		{headgate.PerMinute(0), 0.25, headgate.PerMinute(0)},  // but not of nothing
		{headgate.PerMinute(100), 0.29, headgate.PerMinute(29)},
		{headgate.PerMinute(10), 0.7, headgate.PerMinute(7)},
		{headgate.PerSecond(100).WithBurst(500), 0.1, headgate.PerSecond(10).WithBurst(50)},
		{headgate.PerSecond(100).WithBurst(3), 0.1, headgate.PerSecond(10).WithBurst(1)},
		{headgate.PerCalendar(200, headgate.Day, berlin), 0.5, headgate.PerCalendar(100, headgate.Day, berlin)},
		{
			headgate.PerHour(90).WithAlgorithm(headgate.SlidingBuckets).WithBuckets(12, headgate.EdgeStrict), 0.5,
			headgate.PerHour(45).WithAlgorithm(headgate.SlidingBuckets).WithBuckets(12, headgate.EdgeStrict),
		},
		{
			headgate.PerHour(9).WithAlgorithm(headgate.SlidingLog).WithRefusalsCounted(), 0.5,
			headgate.PerHour(4).WithAlgorithm(headgate.SlidingLog).WithRefusalsCounted(),
		},
		{headgate.PerSecond(100).WithBurst(900).WithRefillEvery(5 * time.Second), 0.1, headgate.PerSecond(10).WithBurst(90).WithRefillEvery(5 * time.Second)},
		{headgate.PerMinute(2).WithRefillEvery(time.Minute), 0.1, headgate.PerMinute(1).WithRefillEvery(time.Minute)},
		{headgate.Unlimited(), 0.5, headgate.Unlimited()},
	} {
		if got := headgate.LimitOf(tt.limit.Rule().Share(tt.share)); !got.Equal(tt.want) || !got.Rule().Valid() {
			t.Errorf("%v of %s is %s, want %s", tt.share, tt.limit, got, tt.want)
		}
	}
	// A share's step of 1.5 tokens for a burst of 1 is valid: it loses half a token, which
	// is less than the limit, not more.
	if part := headgate.LimitOf(headgate.PerMinute(2).WithBurst(3).WithRefillEvery(90 * time.Second).Rule().Share(0.5)); !part.Rule().Valid() || part.Burst() != 1 {
		t.Errorf("half of 3 tokens every 90 s: %s", part)
	}
	for _, bad := range []float64{0, -0.5, 1.01, math.NaN(), math.Inf(1)} {
		limit := headgate.LimitOf(headgate.PerMinute(5).Rule().Share(bad))
		if err := limit.Validate(); !errors.Is(err, headgate.ErrInvalidLimit) {
			t.Errorf("a share of %v: %v", bad, err)
		}
		if again := limit.WithBurst(3); again.Rule().Valid() {
			t.Errorf("a share of %v is valid again: %s", bad, again)
		}
	}
}

// TestSharesNeverAddUpToMore: k processes with 1/k each may have at most the
// limit, or one each. A burst is one that any rate can be counted with: one that
// was within the rounding at the whole rate may be beyond it at a part of it, and
// such a share is invalid.
func TestSharesNeverAddUpToMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		period := time.Duration(rapid.Int64Range(1, int64(store.MaxPeriod/time.Microsecond)).Draw(t, "period")) * time.Microsecond
		n := rapid.Int64Range(1, store.MaxLimit).Draw(t, "n")
		limit := headgate.Per(n, period)
		if rapid.Bool().Draw(t, "burst") {
			exact := min(store.MaxLimit, (1<<52)/int64(period/time.Microsecond))
			limit = limit.WithBurst(rapid.Int64Range(1, exact).Draw(t, "b"))
		}
		if !limit.Rule().Valid() {
			t.Fatalf("%d per %s is invalid: %v", n, period, limit.Validate())
		}
		k := rapid.Int64Range(1, 1000).Draw(t, "k")
		part := headgate.LimitOf(limit.Rule().Share(1 / float64(k)))
		if !part.Rule().Valid() {
			t.Fatalf("1/%d of %s: %v", k, limit, part.Validate())
		}
		if k*part.N() > max(limit.N(), k) || k*part.Burst() > max(limit.Burst(), k) {
			t.Fatalf("%d × %s is more than %s", k, part, limit)
		}
		if part.N() < limit.N()/k {
			t.Fatalf("1/%d of %s is %s", k, limit, part)
		}
	})
}

// TestFallbackTrace follows one limit of 8 through an outage, with a share of
// a quarter.
func TestFallbackTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &outage{Store: memory.New()}
		l := headgate.New(store, headgate.WithFallback(memory.New(), 0.25))
		limit := headgate.PerHour(8).WithAlgorithm(headgate.SlidingLog)
		for i, step := range []struct {
			down    bool
			allowed bool
			reason  headgate.Reason
			limit   int64
			left    int64
		}{
			{false, true, headgate.ReasonOK, 8, 7},
			{false, true, headgate.ReasonOK, 8, 6},
			{true, true, headgate.ReasonFallback, 2, 1},
			{true, true, headgate.ReasonFallback, 2, 0},
			{true, false, headgate.ReasonFallback, 2, 0},
			{false, true, headgate.ReasonOK, 8, 5},       // what passed in between is not counted
			{true, false, headgate.ReasonFallback, 2, 0}, // nor is it forgotten by the fallback
		} {
			store.down = step.down
			d, err := l.Allow(t.Context(), "k", limit)
			if errors.Is(err, headgate.ErrUnavailable) != step.down {
				t.Fatalf("step %d: %v", i, err)
			}
			if d.Allowed != step.allowed || d.Reason != step.reason || d.Limit != step.limit || d.Remaining != step.left {
				t.Fatalf("step %d: %+v", i, d)
			}
		}
	})
}

func TestFallbackAllOrNothingAndBatch(t *testing.T) {
	db := &outage{Store: memory.New(), down: true}
	l := headgate.New(db, headgate.WithFallback(memory.New(), 0.5), headgate.WithFailurePolicy(headgate.FailClosed))
	ops := []store.Op{
		{Key: "a", Rule: headgate.PerHour(4).Rule(), Cost: 1},
		{Key: "b", Rule: headgate.PerHour(2).Rule(), Cost: 1},
		{Key: "c", Rule: headgate.Unlimited().Rule(), Cost: 1},
	}
	out := make([]store.Decision, 3)
	d, err := l.Caller().AllowAll(t.Context(), ops, out)
	if !errors.Is(err, headgate.ErrUnavailable) || !d.Allowed || d.Reason != headgate.ReasonFallback || out[2].Reason != headgate.ReasonNoLimit {
		t.Fatalf("%+v, %+v, %v", d, out, err)
	}
	if !ops[0].Rule.Equal(headgate.PerHour(4).Rule()) {
		t.Error("the caller's op was changed")
	}
	d, err = l.Caller().AllowAll(t.Context(), ops, out)
	if err == nil || d.Allowed || !out[0].Allowed || out[0].Granted != 0 || out[0].Remaining != 1 {
		t.Fatalf("b is at its share, a must not be charged: %+v, %+v, %v", d, out, err)
	}
	if err = l.Caller().Batch(t.Context(), ops, out); err == nil || !out[0].Allowed || out[1].Allowed {
		t.Fatalf("batch: %+v, %v", out, err)
	}
}

// TestFallbackThatFails: then the policy decides.
func TestFallbackThatFails(t *testing.T) {
	store, second := &outage{Store: memory.New(), down: true}, &outage{Store: memory.New(), down: true}
	down := headgate.New(store, headgate.WithFallback(second, 0.5), headgate.WithFailurePolicy(headgate.FailClosed))
	if d, err := down.Allow(t.Context(), "k", headgate.PerHour(4)); !errors.Is(err, headgate.ErrUnavailable) || d.Allowed || d.Reason != headgate.ReasonFailClosed {
		t.Errorf("%+v, %v", d, err)
	}
	l := headgate.New(&outage{Store: memory.New()}, headgate.WithFallback(memory.New(), 1))
	if d, err := l.AllowN(t.Context(), "k", headgate.PerHour(4), -1); !errors.Is(err, headgate.ErrInvalidCost) || d.Allowed {
		t.Errorf("a wrong question: %+v, %v", d, err)
	}
}

// TestCancelAfterOutage: a reservation goes back to where it was made, and one
// that the policy let pass was made nowhere.
func TestCancelAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := headgate.PerHour(8)
		for _, fallback := range []bool{false, true} {
			db, second := &outage{Store: memory.New()}, memory.New()
			var options []headgate.Option
			if fallback {
				options = append(options, headgate.WithFallback(second, 0.5))
			}
			l := headgate.New(db, options...)
			if d, err := l.AllowN(t.Context(), "k", limit, 5); err != nil || d.Remaining != 3 {
				t.Fatal(d, err)
			}
			db.down = true
			r, err := l.Reserve(t.Context(), "k", limit, 2, 0)
			if err == nil || !r.Decision.Allowed {
				t.Fatalf("%+v, %v", r.Decision, err)
			}
			db.down = false
			if err := r.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
			if d, err := l.Peek(t.Context(), "k", limit); err != nil || d.Remaining != 3 {
				t.Errorf("fallback %v: 5 of 8 are used, but %d are left (%v)", fallback, d.Remaining, err)
			}
			if !fallback {
				continue
			}
			if d, _ := store.Execute(t.Context(), second, store.Op{Key: "k", Rule: limit.Rule().Share(0.5), Cost: 1, Kind: store.KindPeek}); d.Remaining != 4 {
				t.Errorf("the fallback has %d of 4 left", d.Remaining)
			}
		}
	})
}

// TestWaitDuringOutage: the fallback's limit is waited for like any other.
func TestWaitDuringOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := headgate.New(&outage{Store: memory.New(), down: true}, headgate.WithFallback(memory.New(), 0.5))
		start := time.Now()
		limit := headgate.PerSecond(4).WithAlgorithm(headgate.FixedWindow).WithAnchor(headgate.AnchorFirstRequest)
		for range 5 { // two a second
			if err := l.Wait(t.Context(), "k", limit); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

// TestGiveBack: what the fallback gave out goes back there, and nowhere else.
func TestGiveBack(t *testing.T) {
	db, local := &outage{Store: memory.New()}, memory.New()
	l := headgate.New(db, headgate.WithFallback(local, 0.5))
	op := store.Op{Key: "k", Rule: headgate.PerHour(4).Rule(), Cost: 1}
	left := func() int64 {
		d, _ := l.Peek(t.Context(), op.Key, headgate.LimitOf(op.Rule))
		return d.Remaining
	}
	var ops []store.Op
	var decisions []store.Decision
	for _, down := range []bool{false, true} {
		db.down = down
		d, _ := l.Caller().Do(t.Context(), op)
		ops, decisions = append(ops, op), append(decisions, d)
	}
	for i, want := range []struct{ own, local int64 }{{4, 1}, {4, 2}} {
		db.down = false
		if err := l.Caller().Refund(t.Context(), ops[i:i+1], decisions[i:i+1], 0); err != nil {
			t.Fatal(err)
		}
		own := left()
		db.down = true
		if got := left(); own != want.own || got != want.local {
			t.Errorf("after %d: %d and %d left, want %v", i, own, got, want)
		}
	}
	if d := decisions[0]; d.Granted != 0 || d.Remaining != 4 || d.ResetAfter != 0 {
		t.Errorf("after its refund: %+v", d)
	}
	db.down = false
	if err := l.Caller().Refund(t.Context(), ops, decisions, 0); err != nil || left() != 4 {
		t.Errorf("a second time: %v, %d left", err, left())
	}
	d, _ := l.Caller().Do(t.Context(), op)
	db.down = true
	if err := l.Caller().Refund(t.Context(), ops[:1], []store.Decision{d}, 0); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("to a store that is down: %v", err)
	}
}
