package store

import "github.com/headgate/headgate/internal/base/plain"

// Algorithm is the way a limit counts. The zero value is TokenBucket, the default.
type Algorithm uint8

// The algorithms. Their arithmetic is in package algorithm, one file each.
const (
	// TokenBucket allows bursts of up to Burst, and Limit per Period after that.
	TokenBucket Algorithm = iota
	// LeakyBucket is a first-in, first-out queue of Burst places that drains at a fixed
	// rate. An allowed request carries Delay, the time until its turn. A full queue
	// refuses.
	LeakyBucket
	// FixedWindow counts in windows that start on the clock, on the calendar or at the
	// first request. Up to twice the limit can pass around a boundary.
	FixedWindow
	// SlidingLog keeps every allowed request, so no window ever holds more than Limit.
	// Its memory grows with the limit.
	SlidingLog
	// SlidingWindow keeps two counters and assumes that the previous window was even:
	// floor(previous × overlap) + current + cost ≤ limit.
	SlidingWindow
	// SlidingBuckets divides the window into sub-windows and counts each.
	SlidingBuckets
	// Concurrency counts requests in progress, not requests per period; see
	// headgate.Concurrent.
	Concurrency
	// Distinct counts how many different values of something a key shows in windows
	// like those of FixedWindow: "at most 20 accounts an hour from one address". Ops
	// name the value with [Op.Member]. A value that was shown in this window passes and
	// costs nothing; a new one costs 1, whatever the Op.Cost, unless
	// that is above MaxLimit: such a request never passes. A limit of up to
	// MaxDistinctExact is exact. A larger one measures: above 4096 values of a key it
	// counts with an error of about 0.65%, and once it is reached it refuses only a
	// part of the new values, 12% at 100,000.
	Distinct
)

// String returns the name that rules use, such as token_bucket.
func (a Algorithm) String() string {
	if a <= Distinct {
		return [...]string{
			TokenBucket: "token_bucket", LeakyBucket: "leaky_bucket", FixedWindow: "fixed_window",
			SlidingLog: "sliding_log", SlidingWindow: "sliding_window", SlidingBuckets: "sliding_buckets",
			Concurrency: "concurrency", Distinct: "distinct",
		}[a]
	}
	return plain.Numbered("algorithm", uint8(a))
}

// ParseAlgorithm returns the algorithm with the given name, as in [Algorithm.String].
// It reports false for unknown names, and for concurrency and distinct, which
// [Algorithms] does not list.
func ParseAlgorithm(name string) (Algorithm, bool) {
	for _, a := range Algorithms() {
		if a.String() == name {
			return a, true
		}
	}
	return 0, false
}

// Algorithms returns the algorithms that limit a rate, in the order of their constants:
// all except Concurrency and Distinct, which count something else than requests.
func Algorithms() []Algorithm {
	return []Algorithm{TokenBucket, LeakyBucket, FixedWindow, SlidingLog, SlidingWindow, SlidingBuckets}
}

// Anchor says where the windows of FixedWindow start.
type Anchor uint8

const (
	// AnchorClock aligns windows to whole multiples of the period since the Unix epoch
	// or, for a limit made by headgate.PerCalendar, to the calendar of its time zone.
	AnchorClock Anchor = iota
	// AnchorFirstRequest starts a window with the first request in it.
	AnchorFirstRequest
)

// String returns the name that rules use: clock or first_request.
func (a Anchor) String() string {
	if a == AnchorFirstRequest {
		return "first_request"
	}
	return "clock"
}

// Edge says how SlidingBuckets counts the oldest sub-window, which is only partly
// inside the window.
type Edge uint8

const (
	// EdgeWeighted counts it by its overlap: floor(count × overlap).
	EdgeWeighted Edge = iota
	// EdgeLenient leaves it out.
	EdgeLenient
	// EdgeStrict counts it whole: never more than Limit in any window.
	EdgeStrict
)

// String returns the name that rules use: weighted, lenient or strict.
func (e Edge) String() string {
	if e <= EdgeStrict {
		return [...]string{
			EdgeWeighted: "weighted", EdgeLenient: "lenient", EdgeStrict: "strict",
		}[e]
	}
	return plain.Numbered("edge", uint8(e))
}

// CalendarUnit is a window of the calendar in some time zone. Its length varies: a day
// has 23, 24 or 25 hours where clocks change.
type CalendarUnit uint8

// The calendar's windows. A week begins on Monday (ISO 8601).
const (
	NoCalendar CalendarUnit = iota
	Minute
	Hour
	Day
	Week
	Month
	Year
)

// String returns the unit's name in lower case, such as day.
func (u CalendarUnit) String() string {
	if u <= Year {
		return [...]string{
			NoCalendar: "none", Minute: "minute", Hour: "hour", Day: "day", Week: "week", Month: "month",
			Year: "year",
		}[u]
	}
	return plain.Numbered("unit", uint8(u))
}
