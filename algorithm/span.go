package algorithm

import (
	"github.com/headgate/headgate/store"
)

// Span is part of a state: Count was taken between Start and End, in microseconds since
// the epoch, and Counts of it still count.
type Span struct {
	Start, End    int64
	Count, Counts int64
}

// Spans appends to dst the parts of a window's state at now, oldest first, for display:
// the window, the two windows, the log entries (each with the period in which it
// counts), or the sub-windows that are not empty. The sum of Counts is the usage of the
// limit, without credit. A bucket's state has no such parts: its usage drains until
// ResetAfter, evenly or in steps.
func Spans(r *store.Rule, s *State, now int64, dst []Span) []Span {
	switch r.Algorithm {
	case store.FixedWindow, store.Distinct:
		return fixedSpans(r, s, now, dst)
	case store.SlidingLog, store.Concurrency:
		return logSpans(r, s, now, dst)
	case store.SlidingWindow:
		return slidingSpans(r, s, now, dst)
	case store.SlidingBuckets:
		return bucketsSpans(r, s, now, dst)
	case store.TokenBucket, store.LeakyBucket:
	}
	return dst
}

func fixedSpans(r *store.Rule, s *State, now int64, dst []Span) []Span {
	count, end := s.V[0], s.V[1]
	if count == 0 || now >= end {
		return dst
	}
	start := end - s.V[2]
	if r.Calendar != store.NoCalendar {
		// After a change of the caller's zone the window may have begun earlier.
		start, _ = CalendarWindow(r.Calendar, r.Zone, end-1)
	}
	return append(dst, Span{start, end, count, count})
}

func logSpans(r *store.Rule, s *State, now int64, dst []Span) []Span {
	_, head := logAt(r, s, now)
	for end := s.end(r.Algorithm); head.i < end; {
		count, next := s.entry(r.Algorithm, head)
		dst = append(dst, Span{head.at, head.at + r.Period, count, count})
		head = next
	}
	return dst
}

func slidingSpans(r *store.Rule, s *State, now int64, dst []Span) []Span {
	c := slidingAt(s, now, r.Period)
	if c.previous > 0 {
		dst = append(dst, Span{c.start - r.Period, c.start, c.previous, mulDiv(c.previous, c.overlap, r.Period)})
	}
	if c.current > 0 {
		dst = append(dst, Span{c.start, c.start + r.Period, c.current, c.current})
	}
	return dst
}

func bucketsSpans(r *store.Rule, s *State, now int64, dst []Span) []Span {
	width := s.V[1]
	if width == 0 || len(s.Words) == 0 {
		return dst
	}
	span := spanAt(s.V[2], width, max(now, s.V[0]*width))
	for j := max(span.oldest, 0); j <= s.V[0]; j++ {
		count := s.count(j)
		if count == 0 {
			continue
		}
		dst = append(dst, Span{j * width, (j + 1) * width, count, s.counting(r.Edge, span, j)})
	}
	return dst
}
