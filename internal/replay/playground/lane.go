// Package playground runs one limit with requests at given times for the
// playground page: what is allowed, how large the state is, and what an exact log
// of the same history would have decided. web/wasm compiles it to WebAssembly.
package playground

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// Verdict compares a decision with an exact log of the requests that the limit has
// allowed.
type Verdict uint8

// The verdicts.
const (
	Right     Verdict = iota // as the exact log would have decided
	TooMany                  // allowed, although more than the limit was allowed within one period
	TooStrict                // refused, although the last period had capacity for it
)

// Outcome is the result of one request.
type Outcome struct {
	store.Decision
	Verdict Verdict
}

// Counts are the statistics of a lane, in requests unless noted.
type Counts struct {
	Allowed, Refused   int64
	TooMany, TooStrict int64
	Peak               int64 // highest cost allowed within one period
}

// Lane is one limit and its history. The zero value has no limit: Set one.
type Lane struct {
	limit  headgate.Limit
	state  algorithm.State
	counts Counts
	passed history
	spans  []algorithm.Span
}

// Set sets or replaces the limit. The usage is kept unless the algorithm changes,
// as in a store. On an error, which wraps headgate.ErrInvalidLimit, nothing
// changes.
func (l *Lane) Set(limit headgate.Limit) error {
	if err := limit.Validate(); err != nil {
		return err
	}
	if l.limit.Rule().Valid() && l.limit.Algorithm() != limit.Algorithm() {
		l.state = algorithm.State{}
	}
	l.limit = limit
	return nil
}

// Reset forgets everything except the limit.
func (l *Lane) Reset() { *l = Lane{limit: l.limit, spans: l.spans[:0]} }

// Hit makes a request of cost at a time, in microseconds since the epoch. Times
// must not decrease.
func (l *Lane) Hit(at, cost int64) Outcome {
	res := algorithm.Step(l.limit.Rule(), &l.state, at, algorithm.Request{Cost: cost})
	out := Outcome{Decision: res.Decision}
	l.passed.forget(at - l.limit.Rule().Period)
	fits := l.passed.total+cost <= l.limit.N()
	switch {
	case res.Allowed && !fits:
		out.Verdict = TooMany
		l.counts.TooMany++
	case !res.Allowed && fits:
		out.Verdict = TooStrict
		l.counts.TooStrict++
	}
	if !res.Allowed {
		l.counts.Refused++
		return out
	}
	l.counts.Allowed++
	l.passed.add(at, cost)
	l.counts.Peak = max(l.counts.Peak, l.passed.total)
	return out
}

// Do answers a request as a store would, without counting it. The shared test
// vectors use it.
func (l *Lane) Do(at int64, req algorithm.Request) algorithm.Result {
	return algorithm.Step(l.limit.Rule(), &l.state, at, req)
}

// Counts returns the statistics.
func (l *Lane) Counts() Counts { return l.counts }

// Peek returns the decision on a request of cost at a time, without making it.
func (l *Lane) Peek(at, cost int64) store.Decision {
	return algorithm.Step(l.limit.Rule(), &l.state, at, algorithm.Request{Kind: store.KindPeek, Cost: cost}).Decision
}

// Used returns how much of the limit is in use at a time: fractions of a token
// in a bucket, whole requests in a window.
func (l *Lane) Used(at int64) float64 {
	if l.limit.Algorithm() <= headgate.LeakyBucket {
		d := l.Peek(at, 0)
		if l.limit.Rule().RefillEvery > 0 {
			return float64(d.Limit - d.Remaining) // ResetAfter counts down between two steps
		}
		reset := d.ResetAfter
		return float64(reset) / float64(l.limit.Period()) * float64(l.limit.N())
	}
	used := int64(0)
	for _, span := range l.Spans(at) {
		used += span.Counts
	}
	return float64(used)
}

// Spans returns the parts of the state; see algorithm.Spans. The result is valid
// until the next call.
func (l *Lane) Spans(at int64) []algorithm.Span {
	l.spans = algorithm.Spans(l.limit.Rule(), &l.state, at, l.spans[:0])
	return l.spans
}

// Bytes returns the size of the state's numbers, 8 bytes each, without the key and
// the store's overhead.
func (l *Lane) Bytes() int64 {
	const word = 8
	numbers := 3
	switch l.limit.Algorithm() {
	case headgate.SlidingLog, headgate.SlidingWindow:
		numbers = 4
	case headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingBuckets, headgate.Concurrency, headgate.Distinct:
	}
	return word * int64(numbers+len(l.state.Words))
}

// Limit returns the lane's limit.
func (l *Lane) Limit() headgate.Limit { return l.limit }

// Spec is a limit as plain numbers.
type Spec struct {
	Algorithm   headgate.Algorithm
	N           int64
	Period      time.Duration
	Burst       int64 // of the bucket algorithms; 0 means N
	Anchor      headgate.Anchor
	Buckets     int // of sliding buckets; 0 is the default
	Edge        headgate.Edge
	CountDenied bool // for windows and the sliding log
	// DelayAfter is how many requests a leaky bucket allows without delay, and
	// MaxWait the longest delay; 0 is the algorithm's default.
	DelayAfter int64
	MaxWait    time.Duration
	// RefillEvery is the length of a token bucket's steps; 0 refills continuously.
	RefillEvery time.Duration
}

// Limit returns the limit, which may be invalid. It ignores options of other
// algorithms, so that a page can keep them while the algorithm changes.
func (s Spec) Limit() headgate.Limit {
	l := headgate.Per(s.N, s.Period).WithAlgorithm(s.Algorithm)
	switch s.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		if s.Burst != 0 {
			l = l.WithBurst(s.Burst)
		}
		if s.Algorithm == headgate.TokenBucket && s.RefillEvery != 0 {
			l = l.WithRefillEvery(s.RefillEvery)
		}
		if s.Algorithm == headgate.LeakyBucket && s.DelayAfter != 0 {
			l = l.WithDelayAfter(s.DelayAfter)
		}
		if s.Algorithm == headgate.LeakyBucket && s.MaxWait != 0 {
			l = l.WithMaxWait(s.MaxWait)
		}
	case headgate.FixedWindow:
		l = l.WithAnchor(s.Anchor)
	case headgate.SlidingBuckets:
		if s.Buckets != 0 {
			l = l.WithBuckets(s.Buckets, s.Edge)
		}
	case headgate.SlidingLog, headgate.SlidingWindow, headgate.Concurrency, headgate.Distinct:
	}
	if s.CountDenied && s.Algorithm > headgate.LeakyBucket {
		l = l.WithRefusalsCounted()
	}
	return l
}

// history is the exact log of allowed requests, the oldest first.
type history struct {
	entries []entry
	head    int // the oldest entry kept
	total   int64
}

type entry struct{ at, cost int64 }

func (h *history) add(at, cost int64) {
	h.entries = append(h.entries, entry{at, cost})
	h.total += cost
}

// forget drops the entries up to a time.
func (h *history) forget(at int64) {
	for h.head < len(h.entries) && h.entries[h.head].at <= at {
		h.total -= h.entries[h.head].cost
		h.head++
	}
	if h.head > len(h.entries)/2 {
		n := copy(h.entries, h.entries[h.head:])
		h.entries, h.head = h.entries[:n], 0
	}
}
