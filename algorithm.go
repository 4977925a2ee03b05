package headgate

import "github.com/headgate/headgate/store"

// Algorithm is the way a limit counts. The zero value is TokenBucket, the default.
type Algorithm = store.Algorithm

// The algorithms. Their arithmetic is in package algorithm, one file each.
const (
	// TokenBucket allows bursts of up to Burst, and Limit per Period after that.
	TokenBucket Algorithm = store.TokenBucket
	// LeakyBucket is a first-in, first-out queue of Burst places that drains at a fixed
	// rate. An allowed request carries Delay, the time until its turn. A full queue
	// refuses.
	LeakyBucket Algorithm = store.LeakyBucket
	// FixedWindow counts in windows that start on the clock, on the calendar or at the
	// first request. Up to twice the limit can pass around a boundary.
	FixedWindow Algorithm = store.FixedWindow
	// SlidingLog keeps every allowed request, so no window ever holds more than Limit.
	// Its memory grows with the limit.
	SlidingLog Algorithm = store.SlidingLog
	// SlidingWindow keeps two counters and assumes that the previous window was even:
	// floor(previous × overlap) + current + cost ≤ limit.
	SlidingWindow Algorithm = store.SlidingWindow
	// SlidingBuckets divides the window into sub-windows and counts each.
	SlidingBuckets Algorithm = store.SlidingBuckets
	// Concurrency counts requests in progress, not requests per period; see
	// [Concurrent].
	Concurrency Algorithm = store.Concurrency
	// Distinct counts how many different values of something a key shows in windows
	// like those of FixedWindow: "at most 20 accounts an hour from one address". See
	// [Limiter.AllowMember]. A value that was shown in this window passes and
	// costs nothing; a new one costs 1, whatever the cost. A limit of up to
	// 65,536 is exact. A larger one measures: above 4096 values of a key it
	// counts with an error of about 0.65%, and once it is reached it refuses only a
	// part of the new values, 12% at 100,000.
	Distinct Algorithm = store.Distinct
)

// Anchor says where the windows of FixedWindow start.
type Anchor = store.Anchor

const (
	// AnchorClock aligns windows to whole multiples of the period since the Unix epoch
	// or, for a limit made by [PerCalendar], to the calendar of its time zone.
	AnchorClock Anchor = store.AnchorClock
	// AnchorFirstRequest starts a window with the first request in it.
	AnchorFirstRequest Anchor = store.AnchorFirstRequest
)

// Edge says how SlidingBuckets counts the oldest sub-window, which is only partly
// inside the window.
type Edge = store.Edge

const (
	// EdgeWeighted counts it by its overlap: floor(count × overlap).
	EdgeWeighted Edge = store.EdgeWeighted
	// EdgeLenient leaves it out.
	EdgeLenient Edge = store.EdgeLenient
	// EdgeStrict counts it whole: never more than Limit in any window.
	EdgeStrict Edge = store.EdgeStrict
)

// CalendarUnit is a window of the calendar in some time zone. Its length varies: a day
// has 23, 24 or 25 hours where clocks change.
type CalendarUnit = store.CalendarUnit

// The calendar's windows. A week begins on Monday (ISO 8601).
const (
	Minute CalendarUnit = store.Minute
	Hour   CalendarUnit = store.Hour
	Day    CalendarUnit = store.Day
	Week   CalendarUnit = store.Week
	Month  CalendarUnit = store.Month
	Year   CalendarUnit = store.Year
)
