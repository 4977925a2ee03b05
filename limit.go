package headgate

import (
	"strconv"
	"strings"
	"time"
)

const (
	// MaxLimit is the largest limit and the largest burst: 2^40.
	MaxLimit = 1 << 40
	// MaxPeriod is the longest period, about 407 days.
	MaxPeriod = (1<<45 - 1) * time.Microsecond
	// MaxLog is the largest limit of SlidingLog, which keeps every request of a period:
	// 2^20.
	MaxLog = 1 << 20
	// MaxConcurrent is the largest limit of Concurrency: 2^16.
	MaxConcurrent = 1 << 16
	// MaxDistinct is the largest limit of Distinct: 2^30.
	MaxDistinct = 1 << 30
	// MaxDistinctExact is the largest limit of Distinct that counts exactly and refuses
	// every value above it: 65,536.
	MaxDistinctExact = 1 << 16
	// DefaultLease is how long a lease lasts unless [Limit.Lease] changes it.
	DefaultLease = time.Minute
	// MaxBuckets is the largest number of sub-windows of SlidingBuckets.
	MaxBuckets = 512
	// DefaultBuckets is the number of sub-windows unless [Limit.Buckets] changes it.
	DefaultBuckets = 60
)

// Limit is how much may pass: N per period, an algorithm and an optional burst. Create
// one with [Per] or a similar function, and refine it with its methods, each of which
// returns a changed copy:
//
//	headgate.PerMinute(5).Using(headgate.SlidingWindow)
//	headgate.PerSecond(100).Burst(500)
//	headgate.PerCalendar(200, headgate.Day, berlin)
//
// Different limits never share a count: PerSecond(5) and PerHour(100) count the key
// "u1" separately. Equal limits, and limits with the same name, do. So if you change
// the numbers of a limit, counts start at zero, unless it has a name; see
// [Limit.Named].
//
// A Limit is immutable and as cheap to copy as a pointer. It is compiled when it is
// created, so create it once, not per request. Compare limits with [Limit.Equal].
//
// The zero Limit is invalid. [Unlimited] allows everything; a limit of 0 is valid and
// refuses everything. [Limit.Validate] reports mistakes, and every Limiter method
// returns them as [ErrInvalidLimit].
type Limit struct {
	_    [0]func() // forbids ==, which would compare the pointers
	rule *Rule
}

// Per returns a limit of n per period: a token bucket with a burst of n. The period
// must be a whole number of microseconds.
func Per(n int64, period time.Duration) Limit {
	return compile(Rule{Limit: n, Period: whole(period)})
}

// whole returns d in microseconds, or -1 if it is not a whole number of them.
func whole(d time.Duration) int64 {
	if d%time.Microsecond != 0 {
		return -1
	}
	return int64(d / time.Microsecond)
}

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
	return compile(Rule{
		Algorithm: FixedWindow, Calendar: unit, Zone: zone,
		Limit: n, Period: nominal(unit),
	})
}

// InZone returns l, which must be a limit of [PerCalendar], for a caller whose own time
// zone is zone (UTC if nil) and may change:
//
//	daily := headgate.PerCalendar(200, headgate.Day, nil)
//	limiter.Allow(ctx, user.ID, daily.InZone(user.Zone))
//
// It counts the same in every zone. A new zone takes effect at the next window, which
// ends at the first midnight there that is at least 24 hours after the end of the last
// window, so that a caller who changes zones gains nothing: of two consecutive windows
// of a day, the second ends 24 hours after the first or later. See
// docs/rules/time-zones.md for all units. Create the limit of a zone once, and keep it.
func (l Limit) InZone(zone *time.Location) Limit {
	if zone == nil {
		zone = time.UTC
	}
	return l.with(func(r *Rule) { r.Zone, r.OwnZone = zone, true })
}

// Concurrent returns a limit of n requests in progress at the same time. What is taken
// is held as a lease, named by [Decision.Lease], until it is released. If its holder
// crashes, the lease ends by itself after a minute, or after the time set with
// [Limit.Lease]. Holders that need longer renew it; see [Limiter.Acquire].
func Concurrent(n int64) Limit {
	return compile(Rule{Algorithm: Concurrency, Limit: n, Period: int64(DefaultLease / time.Microsecond)})
}

// Unlimited returns a limit that allows everything and counts nothing.
func Unlimited() Limit {
	return compile(Rule{Unlimited: true})
}

// Named returns l with a name to count under. Limits with the same name and algorithm
// in one store count the same keys together, and keep their counts when their numbers
// change:
//
//	login := headgate.PerMinute(5).Named("login")
//
// Without a name, only equal limits share counts. [Op.Scope] overrides both. An empty
// name removes the name.
func (l Limit) Named(name string) Limit {
	return l.with(func(r *Rule) { r.name, r.share = name, 0 })
}

// with returns l with something changed.
func (l Limit) with(change func(*Rule)) Limit {
	r := *l.Rule()
	change(&r)
	return compile(r)
}

// Name returns the name set by Named, or "".
func (l Limit) Name() string { return l.Rule().name }

// Using returns l with algorithm a.
func (l Limit) Using(a Algorithm) Limit { return l.with(func(r *Rule) { r.Algorithm = a }) }

// Burst returns l with capacity b: how much a token bucket lets through at once, or how
// many places the queue of a leaky bucket has. Windows have no burst.
func (l Limit) Burst(b int64) Limit {
	return l.with(func(r *Rule) { r.Burst, r.burstSet, r.kept = b, true, 0 })
}

// DelayAfter returns l, which must use LeakyBucket, so that the first n places of its
// queue are served at once. Requests behind them wait until fewer places are taken. The
// queue still has Burst places and drains at the rate. With a burst of 12, of 15
// requests that arrive together the first 8 pass at once, 4 wait, and 3 are refused:
//
//	headgate.PerSecond(5).Using(headgate.LeakyBucket).Burst(12).DelayAfter(8)
//
// n is from 1, the default, to the burst, with which no request waits.
func (l Limit) DelayAfter(n int64) Limit {
	if n == 0 {
		n = -1 // remembered as out of range
	}
	return l.with(func(r *Rule) { r.DelayAfter = n })
}

// MaxWait returns l, which must use LeakyBucket, so that it refuses requests whose turn
// would be later than d from now, even if the queue has a place. d must be a whole
// number of microseconds. Granted credit admits a request all the same.
func (l Limit) MaxWait(d time.Duration) Limit {
	if d <= 0 {
		d = -time.Microsecond // remembered as out of range
	}
	return l.with(func(r *Rule) { r.MaxWait = whole(d) })
}

// RefillEvery returns l, which must use TokenBucket, so that its tokens arrive in steps
// instead of continuously: at every multiple of d since the Unix epoch, the bucket gains
// what its rate yields in d. Parts of tokens are kept exactly. RetryAfter and ResetAfter
// are the time until the step that brings enough:
//
//	headgate.PerMinute(60).RefillEvery(10 * time.Second) // 10 tokens every 10 seconds
//
// With a d of one period and no Burst of its own it allows what a FixedWindow allows.
// Steps are at the same times for all keys and processes, so clients that wait for one
// return together. d must be a whole number of microseconds, and the burst large enough
// for the tokens of a step.
func (l Limit) RefillEvery(d time.Duration) Limit {
	if d <= 0 {
		d = -time.Microsecond // remembered as out of range
	}
	return l.with(func(r *Rule) { r.RefillEvery = whole(d) })
}

// WithRate returns l with another rate: n per period. All else stays: the algorithm and its
// options, a burst that was given, blocks, regions and the name. A limit that is too small
// for its blocks then is exact, and windows of the calendar become windows of the period;
// see [Limit.WithCalendarRate].
func (l Limit) WithRate(n int64, period time.Duration) Limit {
	return l.rated(n, whole(period), NoCalendar)
}

// WithCalendarRate is [Limit.WithRate] with n per calendar unit. A limit of [PerCalendar]
// keeps its zone; for others the unit has its usual length, such as 30 days.
func (l Limit) WithCalendarRate(n int64, unit CalendarUnit) Limit {
	if l.Rule().Calendar == NoCalendar {
		return l.rated(n, nominal(unit), NoCalendar)
	}
	return l.rated(n, nominal(unit), unit)
}

func (l Limit) rated(n, period int64, unit CalendarUnit) Limit {
	out := l.with(func(r *Rule) {
		if n == 0 || r.FullBurst() == r.Limit { // no burst of its own
			r.Burst, r.burstSet, r.kept = 0, false, 0
		}
		r.Limit, r.Period, r.Calendar, r.Unlimited = n, period, unit, false
		if unit == NoCalendar {
			r.Zone, r.OwnZone = nil, false
		}
	})
	if !out.Valid() {
		return out.with(func(r *Rule) { r.blockAge, r.blockOver = 0, 0 })
	}
	return out
}

// Lease returns l, which must be a limit of [Concurrent], with leases that last d
// unless they are renewed. d must be a whole number of microseconds.
func (l Limit) Lease(d time.Duration) Limit {
	return l.with(func(r *Rule) { r.Period, r.leaseSet = whole(d), true })
}

// Anchored returns l, which must use FixedWindow or Distinct, with windows that start as a says.
func (l Limit) Anchored(a Anchor) Limit { return l.with(func(r *Rule) { r.Anchor = a }) }

// Buckets returns l, which must use SlidingBuckets, with n sub-windows, the oldest of
// which is counted as edge says.
func (l Limit) Buckets(n int, edge Edge) Limit {
	if n < 1 || n > MaxBuckets {
		n = MaxBuckets + 1 // remembered as out of range
	}
	return l.with(func(r *Rule) { r.Buckets, r.Edge, r.bucketsSet = uint16(n), edge, true })
}

// CountingDenied returns l, which must use a window or SlidingLog, so that requests that
// it refuses count too: a client that keeps hammering stays out. A refused request
// counts as at most the limit. RetryAfter is when the next one passes if the client
// stops until then. A fixed window still ends at its end; there it only matters that a
// refused request uses up what was left for smaller ones.
func (l Limit) CountingDenied() Limit { return l.with(func(r *Rule) { r.CountDenied = true }) }

// Share returns l with the fraction f of its limit and burst, for one of several
// processes that count separately: Share(0.25) in each of four. f must satisfy 0 < f ≤
// 1; otherwise the Limit is invalid.
//
// The numbers are rounded down, but to no less than 1, so the shares never add up to
// more than l, except for limits smaller than the number of processes. A share of a
// limit without a name counts separately from that limit. A share is invalid if its
// burst is too large to count its rate exactly.
func (l Limit) Share(f float64) Limit {
	r := *l.Rule()
	r.part = true
	if !(f > 0 && f <= 1) {
		r.Limit, r.problem = -1, badShare
		return Limit{rule: &r}
	}
	if f == 1 || r.Unlimited || r.problem != valid {
		return l
	}
	if r.name == "" {
		r.share = r.mark // of limits that have equal shares, each counts for itself
	}
	r.Limit = share(r.Limit, f)
	if r.burstSet {
		r.Burst, r.kept = share(r.Burst+r.kept, f), 0
	}
	if r.DelayAfter > 0 {
		r.DelayAfter = share(r.DelayAfter, f)
	}
	return compile(r)
}

// share returns f of n, rounded down, but at least 1 of anything. A product that is
// below a whole number by no more than a rounding error, such as 0.29 of 100, is not
// rounded down.
func share(n int64, f float64) int64 {
	if n <= 0 {
		return n
	}
	exact := float64(n) * f
	part := int64(exact)
	if exact-float64(part) > 1-1e-9 {
		part++
	}
	return max(part, 1)
}

// Rule returns the compiled form, for stores. It is shared and must not be changed.
func (l Limit) Rule() *Rule {
	if l.rule == nil {
		return &Rule{problem: unset}
	}
	return l.rule
}

// AsBucket returns the compiled form of a valid token or leaky bucket, and nil for
// every other limit. It combines Rule and Valid, for stores where nanoseconds matter.
func (l Limit) AsBucket() *Rule {
	if l.rule != nil && l.rule.bucket {
		return l.rule
	}
	return nil
}

// Equal reports whether l and other allow the same, however they were written and
// whatever their names. Limits without a name share counts if they are equal; shares of
// different limits do not.
func (l Limit) Equal(other Limit) bool {
	a, b := l.Rule(), other.Rule()
	if a == b || a.Unlimited && b.Unlimited {
		return true
	}
	return a.meaning(0) == b.meaning(0) && a.Age == b.Age && a.inRegions == b.inRegions && a.home == b.home && a.slack == b.slack && a.zoneMark() == b.zoneMark() && a.problem == b.problem && a.Unlimited == b.Unlimited
}

// N returns the limit per period.
func (l Limit) N() int64 { return l.Rule().Limit }

// Period returns the length of the period. For a calendar window it is the nominal
// length (a month has 30 days, a year 365), for a limit of [Concurrent] the length of a
// lease.
func (l Limit) Period() time.Duration { return time.Duration(l.Rule().Period) * time.Microsecond }

// Capacity returns the most that can ever pass at once: the burst of a bucket, the
// limit of a window. Decision.Limit reports it.
func (l Limit) Capacity() int64 { return l.Rule().Most() }

// Algorithm returns the algorithm that the limit uses.
func (l Limit) Algorithm() Algorithm { return l.Rule().Algorithm }

// IsUnlimited reports whether l allows everything.
func (l Limit) IsUnlimited() bool { return l.Rule().Unlimited }

// Valid reports whether l can be enforced; [Limit.Validate] says why not.
func (l Limit) Valid() bool { return l.rule != nil && l.rule.problem == valid }

// Validate returns nil, or an error that wraps [ErrInvalidLimit].
func (l Limit) Validate() error {
	if l.Valid() {
		return nil
	}
	return &detailError{kind: ErrInvalidLimit, detail: string(l.Rule().problem)}
}

// String describes the limit for people, such as
// "100/second token_bucket burst 500".
func (l Limit) String() string {
	r := l.Rule()
	if r.problem != valid {
		return "invalid limit: " + string(r.problem)
	}
	if r.Unlimited {
		return "unlimited"
	}
	var b strings.Builder
	b.WriteString(strconv.FormatInt(r.Limit, 10))
	if r.Algorithm == Concurrency {
		b.WriteString(" concurrent, lease " + shortDuration(l.Period()) + r.sharing())
		return b.String()
	}
	b.WriteByte('/')
	if r.Calendar != NoCalendar {
		b.WriteString(r.Calendar.String() + " " + r.Algorithm.String() + " in " + r.Zone.String())
		if r.OwnZone {
			b.WriteString(", the caller's own zone")
		}
		b.WriteString(r.counting() + r.sharing())
		return b.String()
	}
	const day = 24 * time.Hour
	switch days := l.Period() / day; {
	case days == 7 && l.Period()%day == 0:
		b.WriteString("week ")
	case days > 1 && l.Period()%day == 0:
		b.WriteString(strconv.FormatInt(int64(days), 10) + "d ")
	default:
		b.WriteString(unitOf(l.Period()) + " ")
	}
	b.WriteString(r.Algorithm.String())
	switch {
	case r.Algorithm == SlidingBuckets:
		b.WriteString(" of " + strconv.Itoa(int(r.Buckets)) + ", " + r.Edge.String())
	case r.Anchor == AnchorFirstRequest:
		b.WriteString(" from the first request")
	case r.Burst != r.Limit:
		b.WriteString(" burst " + strconv.FormatInt(r.Burst, 10))
	}
	b.WriteString(r.counting())
	if r.RefillEvery > 0 {
		b.WriteString(" refilled every " + shortDuration(time.Duration(r.RefillEvery)*time.Microsecond))
	}
	if r.DelayAfter > 0 {
		b.WriteString(" delay after " + strconv.FormatInt(r.DelayAfter, 10))
	}
	if r.MaxWait > 0 {
		b.WriteString(" wait at most " + shortDuration(time.Duration(r.MaxWait)*time.Microsecond))
	}
	b.WriteString(r.sharing())
	return b.String()
}

// counting says in a limit's text whether it counts refusals.
func (r *Rule) counting() string {
	if r.CountDenied {
		return " counting refusals"
	}
	return ""
}

// sharing says in a limit's text how old its blocks become, and whether regions share it.
func (r *Rule) sharing() string {
	text := ""
	if r.Age > 0 {
		text = " in blocks up to " + shortDuration(time.Duration(r.Age)*time.Microsecond) + " old"
	}
	switch {
	case r.home != "":
		text += " counted in " + r.home
	case r.inRegions:
		text += " in regions"
	}
	return text
}

// unitOf names a period as rates do: second, minute, hour, day, or otherwise a duration
// such as 10m.
func unitOf(period time.Duration) string {
	for _, unit := range [...]struct {
		length time.Duration
		name   string
	}{{time.Second, "second"}, {time.Minute, "minute"}, {time.Hour, "hour"}, {24 * time.Hour, "day"}} {
		if period == unit.length {
			return unit.name
		}
	}
	return shortDuration(period)
}

// shortDuration formats d without trailing zero units: 10m, not 10m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
