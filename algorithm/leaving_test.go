package algorithm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// act is one request that passed: when, and how many tokens it used.
type act struct {
	at, n, until int64
	settled      bool
}

// queue is a bucket with callers who book, leave and wait, and what they do.
type queue struct {
	*rapid.T
	limit headgate.Limit
	state State
	now   int64
	acts  []act
	trace strings.Builder
}

func (q *queue) step(req Request) Result {
	res := Step(q.limit.Rule(), &q.state, q.now, req)
	fmt.Fprintf(&q.trace, "%d %s %d until %d: %s; %s\n", q.now-t0, req.Kind, req.Cost, max(req.CountsUntil-t0, 0), show(res), showState(&q.state))
	return res
}

// book takes n now or in the next seconds.
func (q *queue) book(kind store.Kind, n int64) {
	res := q.step(Request{Kind: kind, Cost: n, Duration: 30 * time.Second})
	if res.Allowed {
		q.acts = append(q.acts, act{q.now + res.Delay.Microseconds(), n, res.CountsUntil, false})
	}
}

// leave gives up one of the places that are still ahead.
func (q *queue) leave(pick int) {
	var ahead []int
	for i, a := range q.acts {
		if a.at > q.now {
			ahead = append(ahead, i)
		}
	}
	if len(ahead) == 0 {
		return
	}
	i := ahead[pick%len(ahead)]
	q.step(Request{Kind: store.KindRefund, Cost: q.acts[i].n, CountsUntil: q.acts[i].until})
	q.acts = slices.Delete(q.acts, i, i+1)
}

// settle finds, while others wait, that a request which has passed used less than was
// taken.
func (q *queue) settle(pick int, part int64) {
	var passed []int
	for i, a := range q.acts {
		if a.at <= q.now && !a.settled {
			passed = append(passed, i)
		}
	}
	if len(passed) == 0 || !slices.ContainsFunc(q.acts, func(a act) bool { return a.at > q.now }) {
		return
	}
	a := &q.acts[passed[pick%len(passed)]]
	part = min(part, a.n)
	q.step(Request{Kind: store.KindRefund, Cost: part, CountsUntil: a.until})
	a.n, a.settled = a.n-part, true
}

// check fills a bucket with what passed: it never has to hold more than its size, so
// that in any window of length w, at most burst + rate·w passed. In a leaky bucket
// nothing passes before all but DelayAfter-1 of the earlier ones have drained.
func (q *queue) check() {
	r := q.limit.Rule()
	slices.SortStableFunc(q.acts, func(a, b act) int { return cmp.Compare(a.at, b.at) })
	used, last := int64(0), int64(0)
	for _, a := range q.acts {
		used, last = max(used-(a.at-last)*r.Leak, 0), a.at
		ahead := used
		used += a.n * r.Token
		slack := r.Leak - 1 // times are rounded up to a microsecond
		if r.Algorithm == store.TokenBucket && used > r.Capacity+slack || r.Algorithm == store.LeakyBucket && ahead > r.Free+slack {
			q.Fatalf("%s: too much passes at %d\n%s", q.limit, a.at-t0, q.trace.String())
		}
	}
}

// TestLeaversLeaveThePaceAlone: however requests book, leave and are followed by others,
// no more of them pass than the limit allows, in any window.
func TestLeaversLeaveThePaceAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		burst := rapid.Int64Range(1, 12).Draw(t, "burst")
		limit := headgate.PerSecond(rapid.SampledFrom([]int64{1, 1, 3, 7, 1000}).Draw(t, "rate")).WithBurst(burst)
		if rapid.Bool().Draw(t, "leaky") {
			limit = limit.WithAlgorithm(store.LeakyBucket)
			if after := rapid.Int64Range(0, burst).Draw(t, "delay after"); after > 0 {
				limit = limit.WithDelayAfter(after)
			}
		}
		q := &queue{T: t, limit: limit, now: t0}
		r := limit.Rule()
		token := r.Token / r.Leak
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				q.book(store.KindTake, rapid.Int64Range(1, burst).Draw(t, "cost"))
			case 1, 2, 3:
				q.book(store.KindReserve, rapid.Int64Range(1, burst).Draw(t, "cost"))
			case 4:
				q.step(Request{Kind: store.KindCharge, Cost: rapid.Int64Range(1, 3).Draw(t, "charge")})
			case 5:
				q.now += rapid.Int64Range(0, 2*token+2).Draw(t, "passes")
			case 6:
				q.settle(rapid.IntRange(0, 99).Draw(t, "which"), rapid.Int64Range(1, burst).Draw(t, "part"))
			default:
				q.leave(rapid.IntRange(0, 99).Draw(t, "who"))
			}
		}
		q.check()
	})
}

// TestCancelsAsXTimeRate has the rows of the tests of cancellation of
// golang.org/x/time/rate, in tenths of a second: a request is booked for n tokens at a
// time and told when to act, or one that was booked is cancelled. (One is missing: after its
// time, x/time/rate refunds nothing, and a bucket what has not been refilled.)
func TestCancelsAsXTimeRate(t *testing.T) {
	type row struct {
		at, n  int64
		act    int64 // -1: refused
		cancel int   // the row whose booking is cancelled, counted from 1; n is 0
	}
	for name, test := range map[string]struct {
		burst int64
		rows  []row
	}{
		"Invalid":  {2, []row{{0, 2, 0, 0}, {0, 3, -1, 0}, {0, 0, 0, 2}, {0, 2, 2, 0}}},
		"Last":     {2, []row{{0, 2, 0, 0}, {0, 2, 2, 0}, {1, 0, 0, 2}, {1, 2, 2, 0}}},
		"0Tokens":  {2, []row{{0, 2, 0, 0}, {0, 1, 1, 0}, {0, 1, 2, 0}, {0, 0, 0, 2}, {0, 1, 3, 0}}},
		"1Token":   {2, []row{{0, 2, 0, 0}, {0, 2, 2, 0}, {0, 1, 3, 0}, {2, 0, 0, 2}, {2, 2, 4, 0}}},
		"Multi":    {4, []row{{0, 4, 0, 0}, {0, 3, 3, 0}, {0, 1, 4, 0}, {0, 1, 5, 0}, {1, 0, 0, 4}, {1, 0, 0, 2}, {1, 3, 5, 0}}},
		"Reversed": {1, []row{{0, 1, 0, 0}, {0, 1, 1, 0}, {0, 1, 2, 0}, {0, 0, 0, 3}, {0, 0, 0, 2}, {0, 1, 1, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			const tenth = 100_000
			var s State
			limit, answers := headgate.PerSecond(10).WithBurst(test.burst), make([]Result, len(test.rows))
			for i, row := range test.rows {
				req := Request{Kind: store.KindReserve, Cost: row.n, Duration: time.Hour}
				if row.cancel > 0 {
					was := answers[row.cancel-1]
					req = Request{Kind: store.KindRefund, Cost: was.Granted, CountsUntil: was.CountsUntil}
				}
				now := t0 + row.at*tenth
				answers[i] = Step(limit.Rule(), &s, now, req)
				act := row.at + answers[i].Delay.Microseconds()/tenth
				if !answers[i].Allowed {
					act = -1
				}
				if row.cancel == 0 && act != row.act {
					t.Errorf("row %d acts at %d, want %d: %s", i+1, act, row.act, showState(&s))
				}
			}
		})
	}
}
