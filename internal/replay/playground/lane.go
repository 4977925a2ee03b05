// Package playground drives one limit with requests at given times and keeps
// the books that its page shows: what passed, what the state weighs, and what
// an exact log of the same history would have said. web/wasm compiles it to
// WebAssembly.
package playground

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// Verdict is how a decision compares with an exact log of what this very limit
// has let through.
type Verdict uint8

// The verdicts.
const (
	Right     Verdict = iota // what the log would have said
	TooMany                  // TooMany passed although, with it, more than the limit passed within one period
	TooStrict                // was refused although the last period had room for it
)

// Outcome is the answer to one request.
type Outcome struct {
	headgate.Decision
	Verdict Verdict
}

// Counts are the books of a lane, in requests unless said otherwise.
type Counts struct {
	Allowed, Refused   int64
	TooMany, TooStrict int64
	Peak               int64 // the most, in cost, that has passed within one period
}

// Lane is one limit and its history. The zero value has no limit: Set one.
type Lane struct {
	limit  headgate.Limit
	state  algorithm.State
	counts Counts
	passed history
	spans  []algorithm.Span
}

// Set gives the lane a limit, at first or instead of the one it has. The use
// that has been made of it stays, unless the algorithm is another one: its state
// is another, as in a store. On an error, which wraps headgate.ErrInvalidLimit,
// nothing changes.
func (l *Lane) Set(limit headgate.Limit) error {
	if err := limit.Validate(); err != nil {
		return err
	}
	if l.limit.Valid() && l.limit.Algorithm() != limit.Algorithm() {
		l.state = algorithm.State{}
	}
	l.limit = limit
	return nil
}

// Reset forgets everything but the limit.
func (l *Lane) Reset() { *l = Lane{limit: l.limit, spans: l.spans[:0]} }

// Hit takes cost at a time, in microseconds since the epoch. Times must not go
// backwards from one hit to the next.
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

// Do answers any request as a store would, past the books. It is what the
// shared vectors are run with.
func (l *Lane) Do(at int64, req algorithm.Request) algorithm.Result {
	return algorithm.Step(l.limit.Rule(), &l.state, at, req)
}

// Counts returns the books.
func (l *Lane) Counts() Counts { return l.counts }

// Peek says what a request of cost would be told at a time.
func (l *Lane) Peek(at, cost int64) headgate.Decision {
	return algorithm.Step(l.limit.Rule(), &l.state, at, algorithm.Request{Kind: headgate.Peek, Cost: cost}).Decision
}

// Used returns how much of the limit is in use at a time: fractions of a token
// in a bucket, whole requests in a window.
func (l *Lane) Used(at int64) float64 {
	if l.limit.Algorithm() <= headgate.LeakyBucket {
		reset := l.Peek(at, 0).ResetAfter
		return float64(reset) / float64(l.limit.Period()) * float64(l.limit.N())
	}
	used := int64(0)
	for _, span := range l.Spans(at) {
		used += span.Counts
	}
	return float64(used)
}

// Spans returns what the state consists of; see algorithm.Spans. It is valid
// until the next call.
func (l *Lane) Spans(at int64) []algorithm.Span {
	l.spans = algorithm.Spans(l.limit.Rule(), &l.state, at, l.spans[:0])
	return l.spans
}

// Bytes returns what the numbers of the state take, 8 bytes each, without the
// key and what a store needs to find it.
func (l *Lane) Bytes() int64 {
	const word = 8
	numbers := 3
	switch l.limit.Algorithm() {
	case headgate.SlidingLog, headgate.SlidingWindow:
		numbers = 4
	case headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingBuckets, headgate.Concurrency:
	}
	return word * int64(numbers+len(l.state.Words))
}

// Limit returns the lane's limit.
func (l *Lane) Limit() headgate.Limit { return l.limit }

// Spec is a limit in the plain numbers that a page has.
type Spec struct {
	Algorithm   headgate.Algorithm
	N           int64
	Period      time.Duration
	Burst       int64 // of the buckets; 0 is as much as N
	Anchor      headgate.Anchor
	Buckets     int // of sliding buckets; 0 is the default
	Edge        headgate.Edge
	CountDenied bool // for a sliding log
	// DelayAfter is how many places of a leaky bucket are served at once, and
	// MaxWait how long a turn may be away; 0 is as the algorithm has it.
	DelayAfter int64
	MaxWait    time.Duration
}

// Limit returns what the spec says; options of other algorithms are left out,
// so that a page can keep them while the algorithm changes. It may be invalid.
func (s Spec) Limit() headgate.Limit {
	l := headgate.Per(s.N, s.Period).Using(s.Algorithm)
	switch s.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		if s.Burst != 0 {
			l = l.Burst(s.Burst)
		}
		if s.Algorithm == headgate.LeakyBucket && s.DelayAfter != 0 {
			l = l.DelayAfter(s.DelayAfter)
		}
		if s.Algorithm == headgate.LeakyBucket && s.MaxWait != 0 {
			l = l.MaxWait(s.MaxWait)
		}
	case headgate.FixedWindow:
		l = l.Anchored(s.Anchor)
	case headgate.SlidingLog:
		if s.CountDenied {
			l = l.CountingDenied()
		}
	case headgate.SlidingBuckets:
		if s.Buckets != 0 {
			l = l.Buckets(s.Buckets, s.Edge)
		}
	case headgate.SlidingWindow, headgate.Concurrency:
	}
	return l
}

// history is what passed and when, the oldest first: the exact log, without a
// limit of its own.
type history struct {
	entries []entry
	head    int // the oldest that is kept
	total   int64
}

type entry struct{ at, cost int64 }

func (h *history) add(at, cost int64) {
	h.entries = append(h.entries, entry{at, cost})
	h.total += cost
}

// forget drops what passed at a time or before.
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
