package headgate

import (
	"time"

	"github.com/headgate/headgate/store"
)

// Limit is how much may pass: N per period, an algorithm and an optional burst. Create
// one with [Per] or a similar function, and refine it with its With methods, each of which
// returns a changed copy:
//
//	headgate.PerMinute(5).WithAlgorithm(headgate.SlidingWindow)
//	headgate.PerSecond(100).WithBurst(500)
//	headgate.PerCalendar(200, headgate.Day, berlin)
//
// Different limits never share a count: PerSecond(5) and PerHour(100) count the key
// "u1" separately. Equal limits, and limits with the same name, do. So if you change
// the numbers of a limit, counts start at zero, unless it has a name; see
// [Limit.WithName].
//
// A Limit is immutable and as cheap to copy as a pointer. It is compiled when it is
// created, so create it once, not per request. Compare limits with [Limit.Equal].
//
// The zero Limit is invalid. [Unlimited] allows everything; a limit of 0 is valid and
// refuses everything. [Limit.Validate] reports mistakes, and every Limiter method
// returns them as [ErrInvalidLimit].
type Limit struct {
	_    [0]func() // forbids ==, which would compare the pointers
	rule *store.Rule
}

// Per returns a limit of n per period: a token bucket with a burst of n. The period
// must be a whole number of microseconds.
func Per(n int64, period time.Duration) Limit {
	return compile(store.Settings{Limit: n, Period: store.Micros(period)})
}

func compile(s store.Settings) Limit { return Limit{rule: store.Compile(s)} }

// PerSecond returns a limit of n per second; see [Per].
func PerSecond(n int64) Limit { return Per(n, time.Second) }

// PerMinute returns a limit of n per minute; see [Per].
func PerMinute(n int64) Limit { return Per(n, time.Minute) }

// PerHour returns a limit of n per hour; see [Per].
func PerHour(n int64) Limit { return Per(n, time.Hour) }

// PerDay returns a limit of n per 24 hours; see [Per]. For calendar days use
// [PerCalendar].
func PerDay(n int64) Limit { return Per(n, 24*time.Hour) }

// PerCalendar returns a fixed window of n per calendar unit in zone, which is UTC if
// nil. A day starts at local midnight and a week on Monday. Windows are as long as the
// zone's daylight-saving changes make them.
func PerCalendar(n int64, unit CalendarUnit, zone *time.Location) Limit {
	if zone == nil {
		zone = time.UTC
	}
	return compile(store.Settings{
		Algorithm: FixedWindow, Calendar: unit, Zone: zone,
		Limit: n, Period: store.Nominal(unit),
	})
}

// WithZone returns l, which must be a limit of [PerCalendar], for a caller whose own time
// zone is zone (UTC if nil) and may change:
//
//	daily := headgate.PerCalendar(200, headgate.Day, nil)
//	limiter.Allow(ctx, user.ID, daily.WithZone(user.Zone))
//
// It counts the same in every zone. A new zone takes effect at the next window, which
// ends at the first midnight there that is at least 24 hours after the end of the last
// window, so that a caller who changes zones gains nothing: of two consecutive windows
// of a day, the second ends 24 hours after the first or later. See
// docs/rules/time-zones.md for all units. Create the limit of a zone once, and keep it.
func (l Limit) WithZone(zone *time.Location) Limit {
	if zone == nil {
		zone = time.UTC
	}
	return l.with(func(s *store.Settings) { s.Zone, s.OwnZone = zone, true })
}

// Concurrent returns a limit of n requests in progress at the same time. What is taken
// is held as a lease, named by [Decision.Lease], until it is released. If its holder
// crashes, the lease ends by itself after a minute, or after the time set with
// [Limit.WithLease]. Holders that need longer renew it; see [Limiter.Acquire].
func Concurrent(n int64) Limit {
	return compile(store.Settings{Algorithm: Concurrency, Limit: n, Period: store.Micros(store.DefaultLease)})
}

// Unlimited returns a limit that allows everything and counts nothing.
func Unlimited() Limit {
	return compile(store.Settings{Unlimited: true})
}

// WithName returns l with a name to count under. Limits with the same name and algorithm
// in one store count the same keys together, and keep their counts when their numbers
// change:
//
//	login := headgate.PerMinute(5).WithName("login")
//
// Without a name, only equal limits share counts. An empty name removes the
// name.
func (l Limit) WithName(name string) Limit {
	return l.with(func(s *store.Settings) { s.Name = name })
}

// with returns l with something changed.
func (l Limit) with(change func(*store.Settings)) Limit { return LimitOf(l.Rule().With(change)) }

// Name returns the name set by WithName, or "".
func (l Limit) Name() string { return l.Rule().Name }

// WithAlgorithm returns l with algorithm a.
func (l Limit) WithAlgorithm(a Algorithm) Limit {
	return l.with(func(s *store.Settings) { s.Algorithm = a })
}

// WithBurst returns l with capacity b: how much a token bucket lets through at once, or how
// many places the queue of a leaky bucket has. Windows have no burst.
func (l Limit) WithBurst(b int64) Limit {
	return l.with(func(s *store.Settings) { s.Burst, s.HasBurst = b, true })
}

// WithDelayAfter returns l, which must use LeakyBucket, so that the first n places of its
// queue are served at once. Requests behind them wait until fewer places are taken. The
// queue still has Burst places and drains at the rate. With a burst of 12, of 15
// requests that arrive together the first 8 pass at once, 4 wait, and 3 are refused:
//
//	headgate.PerSecond(5).WithAlgorithm(headgate.LeakyBucket).WithBurst(12).WithDelayAfter(8)
//
// n is from 1, the default, to the burst, with which no request waits.
func (l Limit) WithDelayAfter(n int64) Limit {
	if n == 0 {
		n = -1 // remembered as out of range
	}
	return l.with(func(s *store.Settings) { s.DelayAfter = n })
}

// WithMaxWait returns l, which must use LeakyBucket, so that it refuses requests whose turn
// would be later than d from now, even if the queue has a place. d must be a whole
// number of microseconds. Granted credit admits a request all the same.
func (l Limit) WithMaxWait(d time.Duration) Limit {
	if d <= 0 {
		d = -time.Microsecond // remembered as out of range
	}
	return l.with(func(s *store.Settings) { s.MaxWait = store.Micros(d) })
}

// WithRefillEvery returns l, which must use TokenBucket, so that its tokens arrive in steps
// instead of continuously: at every multiple of d since the Unix epoch, the bucket gains
// what its rate yields in d. Parts of tokens are kept exactly. RetryAfter and ResetAfter
// are the time until the step that brings enough:
//
//	headgate.PerMinute(60).WithRefillEvery(10 * time.Second) // 10 tokens every 10 seconds
//
// With a d of one period and no Burst of its own it allows what a FixedWindow allows.
// Steps are at the same times for all keys and processes, so clients that wait for one
// return together. d must be a whole number of microseconds, and the burst large enough
// for the tokens of a step.
func (l Limit) WithRefillEvery(d time.Duration) Limit {
	if d <= 0 {
		d = -time.Microsecond // remembered as out of range
	}
	return l.with(func(s *store.Settings) { s.RefillEvery = store.Micros(d) })
}

// WithLease returns l, which must be a limit of [Concurrent], with leases that last d
// unless they are renewed. d must be a whole number of microseconds.
func (l Limit) WithLease(d time.Duration) Limit {
	return l.with(func(s *store.Settings) { s.Period, s.HasLease = store.Micros(d), true })
}

// WithAnchor returns l, which must use FixedWindow or Distinct, with windows that start as a says.
func (l Limit) WithAnchor(a Anchor) Limit { return l.with(func(s *store.Settings) { s.Anchor = a }) }

// WithBuckets returns l, which must use SlidingBuckets, with n sub-windows, the oldest of
// which is counted as edge says.
func (l Limit) WithBuckets(n int, edge Edge) Limit {
	if n < 1 || n > store.MaxBuckets {
		n = store.MaxBuckets + 1 // remembered as out of range
	}
	return l.with(func(s *store.Settings) { s.Buckets, s.Edge = uint16(n), edge })
}

// WithRefusalsCounted returns l, which must use a window or SlidingLog, so that requests that
// it refuses count too: a client that keeps hammering stays out. A refused request
// counts as at most the limit. RetryAfter is when the next one passes if the client
// stops until then. A fixed window still ends at its end; there it only matters that a
// refused request uses up what was left for smaller ones.
func (l Limit) WithRefusalsCounted() Limit {
	return l.with(func(s *store.Settings) { s.CountRefused = true })
}

// Rule returns the compiled form, for authors of stores and of what builds on them. It is
// shared and must not be changed.
func (l Limit) Rule() *store.Rule {
	if l.rule == nil {
		return store.Unset()
	}
	return l.rule
}

// LimitOf returns the limit of a rule; see [Limit.Rule].
func LimitOf(rule *store.Rule) Limit { return Limit{rule: rule} }

// Equal reports whether l and other allow the same, however they were written and
// whatever their names. Limits without a name share counts if they are equal; shares of
// different limits do not.
func (l Limit) Equal(other Limit) bool { return l.Rule().Equal(other.Rule()) }

// N returns the limit per period.
func (l Limit) N() int64 { return l.Rule().Limit }

// Period returns the length of the period. For a calendar window it is the nominal
// length (a month has 30 days, a year 365), for a limit of [Concurrent] the length of a
// lease.
func (l Limit) Period() time.Duration { return time.Duration(l.Rule().Period) * time.Microsecond }

// Burst returns the most that can ever pass at once: the burst of a bucket, the
// limit of a window. Decision.Limit reports it.
func (l Limit) Burst() int64 { return l.Rule().Most() }

// Algorithm returns the algorithm that the limit uses.
func (l Limit) Algorithm() Algorithm { return l.Rule().Algorithm }

// Validate returns nil, or an error that wraps [ErrInvalidLimit].
func (l Limit) Validate() error { return l.rule.Validate() }

// String describes the limit for people, such as
// "100/second token_bucket burst 500".
func (l Limit) String() string { return l.rule.String() }
