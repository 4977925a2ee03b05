package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// clock is a time that tests set.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func newClock() *clock { return &clock{time.Date(2026, 1, 1, 11, 0, 0, 0, time.UTC)} }

// TestLimiterVerbs is a trace of one key: each verb, and what is left after it.
func TestLimiterVerbs(t *testing.T) {
	ctx, c, limit := t.Context(), newClock(), headgate.PerMinute(10)
	store := memory.New()
	defer store.Close()
	l := headgate.New(store, headgate.WithClock(c.Now))
	steps := []struct {
		name      string
		after     time.Duration
		do        func() (headgate.Decision, error)
		allowed   bool
		remaining int64
		granted   int64
		retry     time.Duration
	}{
		{"allow", 0, func() (headgate.Decision, error) { return l.Allow(ctx, "k", limit) }, true, 9, 1, 0},
		{"allow 4", 0, func() (headgate.Decision, error) { return l.AllowN(ctx, "k", limit, 4) }, true, 5, 4, 0},
		{"allow 6", 0, func() (headgate.Decision, error) { return l.AllowN(ctx, "k", limit, 6) }, false, 5, 0, 6 * time.Second},
		{"peek 6", time.Second, func() (headgate.Decision, error) { return l.PeekN(ctx, "k", limit, 6) }, false, 5, 0, 5 * time.Second},
		{"peek 5", 0, func() (headgate.Decision, error) { return l.PeekN(ctx, "k", limit, 5) }, true, 5, 0, 0},
		{"up to 9", 0, func() (headgate.Decision, error) { return l.AllowUpTo(ctx, "k", limit, 9) }, true, 0, 5, 0},
		{"up to 9 of none", 0, func() (headgate.Decision, error) { return l.AllowUpTo(ctx, "k", limit, 9) }, false, 0, 0, 5 * time.Second},
		{"refund 2", 0, func() (headgate.Decision, error) { return l.Refund(ctx, "k", limit, 2) }, true, 2, 0, 0},
		{"charge 3", 0, func() (headgate.Decision, error) { return l.Charge(ctx, "k", limit, 3) }, false, 0, 3, 5 * time.Second},
		{"dry run in debt", 0, func() (headgate.Decision, error) { return l.AllowN(ctx, "k", limit, 0) }, false, 0, 0, 5 * time.Second},
		{"grant 7", 0, func() (headgate.Decision, error) { return l.Grant(ctx, "k", limit, 7, time.Minute) }, true, 7, 7, 0},
		{"allow 7", 0, func() (headgate.Decision, error) { return l.AllowN(ctx, "k", limit, 7) }, true, 0, 7, 0},
		{"allow 11", 0, func() (headgate.Decision, error) { return l.AllowN(ctx, "k", limit, 11) }, false, 0, 0, headgate.Never},
		{"reset, allow 10", 0, func() (headgate.Decision, error) {
			if err := l.Reset(ctx, "k", limit); err != nil {
				return headgate.Decision{}, err
			}
			return l.AllowN(ctx, "k", limit, 10)
		}, true, 0, 10, 0},
		{"a minute later", time.Minute, func() (headgate.Decision, error) { return l.PeekN(ctx, "k", limit, 10) }, true, 10, 0, 0},
	}
	for _, s := range steps {
		c.now = c.now.Add(s.after)
		d, err := s.do()
		if err != nil || d.Allowed != s.allowed || d.Remaining != s.remaining || d.Granted != s.granted || d.RetryAfter != s.retry {
			t.Errorf("%s: %+v, %v; want allowed %v remaining %d granted %d retry %v", s.name, d, err, s.allowed, s.remaining, s.granted, s.retry)
		}
	}
}

// TestT28_AllowAllChargesAllOrNone: the limit that refuses is the answer.
func TestT28_AllowAllChargesAllOrNone(t *testing.T) {
	ctx := t.Context()
	db := memory.New()
	defer db.Close()
	l := headgate.New(db, headgate.WithClock(newClock().Now))
	wide, narrow := headgate.PerMinute(100), headgate.PerMinute(2)
	ops := []store.Op{{Key: "k", Scope: "wide", Rule: wide.Rule(), Cost: 1}, {Key: "k", Scope: "narrow", Rule: narrow.Rule(), Cost: 1}}
	out := make([]store.Decision, len(ops))
	for i, want := range []bool{true, true, false, false} {
		d, err := l.Caller().AllowAll(ctx, ops, out)
		if err != nil || d.Allowed != want || d.Limit != 2 {
			t.Errorf("call %d: %+v, %v", i+1, d, err)
		}
	}
	if out[0].Remaining != 98 {
		t.Errorf("the wide limit was charged for refused requests: %+v", out[0])
	}
	if err := l.Caller().Batch(ctx, ops, out); err != nil || !out[0].Allowed || out[1].Allowed || out[0].Remaining != 97 {
		t.Errorf("Batch answers each separately: %+v, %v", out, err)
	}
	if d, err := l.Caller().AllowAll(ctx, nil, nil); err != nil || !d.Allowed {
		t.Errorf("of no ops all pass: %+v, %v", d, err)
	}
	if _, err := l.Caller().AllowAll(ctx, ops, out[:1]); err == nil {
		t.Error("no error for too little room")
	}
}

// brokenStore fails every time, as a network would.
type brokenStore struct{ err error }

func (s brokenStore) Do(_ context.Context, b *store.Batch) {
	b.Each(func([]store.Op, []store.Decision, store.Mode) error {
		return s.err
	})
}

func (brokenStore) Close() error { return nil }

func TestFailurePolicy(t *testing.T) {
	outage := fmt.Errorf("dial: %w", headgate.ErrUnavailable)
	tests := []struct {
		name   string
		policy headgate.FailurePolicy
		err    error
		want   headgate.Decision
	}{
		{"allow", headgate.FailOpen, outage, headgate.Decision{Allowed: true, Reason: headgate.ReasonFailOpen, Limit: 5, Granted: 2}},
		{"deny", headgate.FailClosed, outage, headgate.Decision{Reason: headgate.ReasonFailClosed, Limit: 5}},
		{"allow, but the question was wrong", headgate.FailOpen, headgate.ErrInvalidCost, headgate.Decision{Reason: headgate.ReasonFailClosed, Limit: 5}},
	}
	for _, tt := range tests {
		l := headgate.New(brokenStore{tt.err}, headgate.WithFailurePolicy(tt.policy))
		limit := headgate.PerMinute(5)
		d, err := l.AllowN(t.Context(), "k", limit, 2)
		if d != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %+v, %v; want %+v and the error", tt.name, d, err, tt.want)
		}
		out := make([]store.Decision, 2)
		op := store.Op{Key: "k", Rule: limit.Rule(), Cost: 2}
		tightest, err := l.Caller().AllowAll(t.Context(), []store.Op{op, op}, out)
		if d = headgate.Decision(tightest); d != tt.want || headgate.Decision(out[1]) != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s, AllowAll: %+v, %v", tt.name, d, err)
		}
		err = l.WaitN(t.Context(), "k", limit, 2)
		if (err == nil) != tt.want.Allowed {
			t.Errorf("%s, Wait: %v", tt.name, err)
		}
	}
}

func TestLimiterRejectsWrongQuestions(t *testing.T) {
	store := memory.New()
	defer store.Close()
	l := headgate.New(store)
	ctx := t.Context()
	if d, err := l.AllowN(ctx, "k", headgate.PerMinute(5), -1); !errors.Is(err, headgate.ErrInvalidCost) || d.Allowed {
		t.Errorf("negative cost: %+v, %v", d, err)
	}
	if d, err := l.Allow(ctx, "k", headgate.Limit{}); !errors.Is(err, headgate.ErrInvalidLimit) || d.Allowed {
		t.Errorf("unset limit: %+v, %v", d, err)
	}
	if err := l.Wait(ctx, "k", headgate.Limit{}); !errors.Is(err, headgate.ErrInvalidLimit) {
		t.Errorf("Wait for an unset limit: %v", err)
	}
	if d, err := l.AllowN(ctx, "k", headgate.Unlimited(), 1<<62); err != nil || !d.Allowed || d.Reason != headgate.ReasonNoLimit {
		t.Errorf("unlimited: %+v, %v", d, err)
	}
}

func TestTightest(t *testing.T) {
	ok := func(left int64, reset time.Duration) store.Decision {
		return store.Decision{Allowed: true, Remaining: left, ResetAfter: reset}
	}
	no := func(retry time.Duration) store.Decision { return store.Decision{RetryAfter: retry} }
	tests := []struct {
		name string
		in   []store.Decision
		want int
	}{
		{"none", nil, -1},
		{"the first of equals", []store.Decision{ok(1, 5), ok(1, 5)}, 0},
		{"the least remaining", []store.Decision{ok(3, 5), ok(1, 5), ok(2, 5)}, 1},
		{"then the later reset", []store.Decision{ok(1, 5), ok(1, 9)}, 1},
		{"a refusal before all", []store.Decision{ok(0, 9), no(1)}, 1},
		{"the longest refusal", []store.Decision{no(1), no(3), no(2)}, 1},
		{"never is the longest", []store.Decision{no(time.Hour), no(headgate.Never)}, 1},
	}
	for _, tt := range tests {
		if got := store.Tightest(tt.in); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestLimitedErrorSaysWhen(t *testing.T) {
	err := &headgate.LimitedError{Decision: headgate.Decision{RetryAfter: 15 * time.Second}}
	if got := err.Error(); got != "rate limited: retry after 15s" {
		t.Error(got)
	}
	err.Decision.RetryAfter = headgate.Never
	if got := err.Error(); got != "rate limited: the cost is more than the limit can ever allow" {
		t.Error(got)
	}
}

func TestErrClosedIsAnOutage(t *testing.T) {
	db := memory.New()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	d, err := headgate.New(db).Allow(t.Context(), "k", headgate.PerMinute(5))
	if !errors.Is(err, store.ErrClosed) || !errors.Is(err, headgate.ErrUnavailable) || d.Reason != headgate.ReasonFailOpen {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestLimitsCountApart: two limits asked about one key, one after the other, as
// in five a second and a hundred an hour.
func TestLimitsCountApart(t *testing.T) {
	t.Parallel()
	limiter := headgate.New(memory.New(), headgate.WithClock(func() time.Time { return time.Unix(1_700_000_000, 0) }))
	direct := headgate.New(memory.New(memory.WithClock(func() time.Time { return time.Unix(1_700_000_000, 0) })))
	for _, l := range []*headgate.Limiter{limiter, direct} {
		second, hour := headgate.PerSecond(5), headgate.PerHour(100)
		for i := range int64(5) {
			a, _ := l.Allow(t.Context(), "u1", second)
			b, _ := l.Allow(t.Context(), "u1", hour)
			if !a.Allowed || a.Remaining != 4-i || !b.Allowed || b.Remaining != 99-i {
				t.Errorf("request %d: %+v, %+v", i, a, b)
			}
		}
		// Every other verb finds the same count.
		if d, err := l.Refund(t.Context(), "u1", second, 2); err != nil || d.Remaining != 2 {
			t.Errorf("refund: %+v, %v", d, err)
		}
		if d, err := l.Peek(t.Context(), "u1", hour); err != nil || d.Remaining != 95 {
			t.Errorf("peek: %+v, %v", d, err)
		}
		r, err := l.Reserve(t.Context(), "u1", hour, 3, 0)
		if err != nil || r.Decision.Remaining != 92 {
			t.Errorf("reserve: %+v, %v", r.Decision, err)
		}
		if err := r.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		if err := l.Wait(t.Context(), "u1", hour); err != nil {
			t.Error(err)
		}
		if err := l.Reset(t.Context(), "u1", second); err != nil {
			t.Error(err)
		}
		var out [2]store.Decision
		ops := []store.Op{{Key: "u1", Rule: second.Rule(), Cost: 1}, {Key: "u1", Rule: hour.Rule(), Cost: 1}}
		if _, err := l.Caller().AllowAll(t.Context(), ops, out[:]); err != nil || out[0].Remaining != 4 || out[1].Remaining != 93 {
			t.Errorf("all: %+v, %v", out, err)
		}
		if err := l.Caller().Batch(t.Context(), ops, out[:]); err != nil || out[0].Remaining != 3 || out[1].Remaining != 92 {
			t.Errorf("batch: %+v, %v", out, err)
		}
	}
}

// TestWaitGoesByTheClock: a clock that is moved ends the wait, however
// little real time that takes.
func TestWaitGoesByTheClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var now atomic.Int64
		l := headgate.New(memory.New(), headgate.WithClock(func() time.Time { return time.Unix(1_700_000_000, now.Load()) }))
		limit := headgate.PerHour(1)
		if err := l.Wait(t.Context(), "k", limit); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- l.Wait(t.Context(), "k", limit) }()
		synctest.Wait()
		begin := time.Now()
		now.Store(int64(time.Hour))
		if err := <-done; err != nil || time.Since(begin) > time.Second {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
	})
}

// TestClocksBeyondTime: a clock out of range is an error, so that time does
// not stand still silently.
func TestClocksBeyondTime(t *testing.T) {
	for _, begin := range []time.Time{{}, time.Unix(0, 0), time.Unix(-5, 0), time.Date(2255, 1, 1, 0, 0, 0, 0, time.UTC), time.UnixMicro(1)} {
		now, right := begin, begin.UnixMicro() == 1
		l := headgate.New(memory.New(), headgate.WithClock(func() time.Time { return now }))
		if err := l.Validate(); right != (err == nil) || !right && !errors.Is(err, store.ErrInvalidTime) {
			t.Errorf("%s: Validate: %v", begin, err)
		}
		for i, want := range []bool{true, false, true} {
			if i == 2 {
				now = now.Add(time.Second)
			}
			want = want && (right || i == 2 && begin.Unix() == 0)
			d, err := l.Allow(t.Context(), "k", headgate.PerSecond(1))
			if d.Allowed != want || !right && i < 2 && !errors.Is(err, store.ErrInvalidTime) {
				t.Errorf("%s, request %d: %+v, %v, want %t", begin, i, d, err, want)
			}
		}
		if _, err := l.Caller().AllowAll(t.Context(), []store.Op{{Key: "all", Rule: headgate.PerSecond(1).Rule(), Cost: 1}}, make([]store.Decision, 1)); !right && begin.Unix() != 0 && !errors.Is(err, store.ErrInvalidTime) {
			t.Errorf("%s: AllowAll: %v", begin, err)
		}
	}
}
