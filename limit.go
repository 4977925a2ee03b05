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
	// MaxLog is the largest limit of SlidingLog, which keeps every request of
	// a period: 2^20.
	MaxLog = 1 << 20
	// MaxConcurrent is the largest limit of Concurrency, which keeps a list of
	// all that is under way: 2^16.
	MaxConcurrent = 1 << 16
	// DefaultLease is how long a lease lasts if the limit does not say.
	DefaultLease = time.Minute
	// MaxBuckets is the largest number of sub-windows of SlidingBuckets.
	MaxBuckets = 512
	// DefaultBuckets is their number if the limit does not say.
	DefaultBuckets = 60
)

// Limit is how much may pass: N per period, an algorithm, an optional burst.
// Make one with [Per] or its kin and refine it with the methods, each of which
// returns a changed copy:
//
//	headgate.PerMinute(5).Using(headgate.SlidingWindow)
//	headgate.PerSecond(100).Burst(500)
//	headgate.PerCalendar(200, headgate.Day, berlin)
//
// Two limits never share a count, unless they mean the same or have the same name:
// of PerSecond(5) and PerHour(100), each counts the key "u1" for itself. So counts
// begin again when the numbers of a limit change; give it a name ([Limit.Named])
// to keep them.
//
// A Limit is immutable and as cheap to copy as a pointer, which it is: compare
// with [Limit.Equal]. It is compiled when it is made, so make it once rather
// than for every request. The zero Limit is invalid; [Unlimited] is explicit, and a limit of 0 is legal
// and refuses everything. Mistakes show in [Limit.Validate], and every Limiter
// method returns them as [ErrInvalidLimit].
type Limit struct {
	_    [0]func() // forbids ==, which would compare the pointers
	rule *Rule
}

// Per returns a limit of n per period, a token bucket with a burst of n. The
// period is a whole number of microseconds.
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

// PerDay returns a limit of n per 24 hours; see [Per]. For a day of the
// calendar use [PerCalendar].
func PerDay(n int64) Limit { return Per(n, 24*time.Hour) }

// PerCalendar returns a fixed window of n per unit of the calendar in zone,
// which is UTC if nil. A day begins at local midnight, a week on Monday, and
// each lasts as long as the zone's daylight-saving changes make it.
func PerCalendar(n int64, unit CalendarUnit, zone *time.Location) Limit {
	if zone == nil {
		zone = time.UTC
	}
	return compile(Rule{
		Algorithm: FixedWindow, Calendar: unit, Zone: zone,
		Limit: n, Period: nominal(unit),
	})
}

// Concurrent returns a limit of n at the same time. What is taken of it is held
// as a lease, under the name in [Decision.Lease], until it is given back by
// Release or, should its holder have crashed, until its time is over: a minute,
// unless [Limit.Lease] says otherwise. Who holds it for longer renews it; see
// [Limiter.Acquire].
func Concurrent(n int64) Limit {
	return compile(Rule{Algorithm: Concurrency, Limit: n, Period: int64(DefaultLease / time.Microsecond)})
}

// Unlimited returns the limit that allows everything and counts nothing.
func Unlimited() Limit {
	return compile(Rule{Unlimited: true})
}

// Named returns l with a name, under which it counts: limits of one name and
// algorithm that share a store count the same keys together, and keep their counts
// when their numbers change.
//
//	login := headgate.PerMinute(5).Named("login")
//
// Without a name a limit counts under what it means. [Op.Scope] overrides either.
// An empty name takes the name away.
func (l Limit) Named(name string) Limit {
	return l.with(func(r *Rule) { r.name, r.share = name, 0 })
}

// with returns l with something changed.
func (l Limit) with(change func(*Rule)) Limit {
	r := *l.Rule()
	change(&r)
	return compile(r)
}

// Name returns the name that Named has given; empty without one.
func (l Limit) Name() string { return l.Rule().name }

// Using returns l with another algorithm.
func (l Limit) Using(a Algorithm) Limit { return l.with(func(r *Rule) { r.Algorithm = a }) }

// Burst returns l with another capacity: how much a token bucket lets through
// at once, or how many places the queue of a leaky bucket has. Windows have no
// burst.
func (l Limit) Burst(b int64) Limit {
	return l.with(func(r *Rule) { r.Burst, r.burstSet = b, true })
}

// DelayAfter returns l, a limit using LeakyBucket, that serves the first n
// places of its queue at once; who comes after them waits until there are
// fewer. The queue still has Burst places, and Limit per Period leave it. So
// with a burst of 12, the first 8 of 15 requests that arrive together pass at
// once, 4 wait for their turns, and 3 are refused:
//
//	headgate.PerSecond(5).Using(headgate.LeakyBucket).Burst(12).DelayAfter(8)
//
// n is from 1, which is plain LeakyBucket, to the burst, with which nobody
// waits.
func (l Limit) DelayAfter(n int64) Limit {
	if n == 0 {
		n = -1 // remembered as out of range
	}
	return l.with(func(r *Rule) { r.DelayAfter = n })
}

// MaxWait returns l, a limit using LeakyBucket, that refuses a request whose
// turn would come later than d from now, though its queue has a place.
// d is a whole number of microseconds. (Credit that was granted buys a place
// all the same.)
func (l Limit) MaxWait(d time.Duration) Limit {
	if d <= 0 {
		d = -time.Microsecond // remembered as out of range
	}
	return l.with(func(r *Rule) { r.MaxWait = whole(d) })
}

// Lease returns l, a limit of [Concurrent], whose leases last d if they are not
// renewed. d is a whole number of microseconds.
func (l Limit) Lease(d time.Duration) Limit {
	return l.with(func(r *Rule) { r.Period, r.leaseSet = whole(d), true })
}

// Anchored returns l, a fixed window, with another begin of its windows.
func (l Limit) Anchored(a Anchor) Limit { return l.with(func(r *Rule) { r.Anchor = a }) }

// Buckets returns l, a limit using SlidingBuckets, cut into n sub-windows, of
// which the oldest is counted as edge says.
func (l Limit) Buckets(n int, edge Edge) Limit {
	if n < 1 || n > MaxBuckets {
		n = MaxBuckets + 1 // remembered as out of range
	}
	return l.with(func(r *Rule) { r.Buckets, r.Edge, r.bucketsSet = uint16(n), edge, true })
}

// CountingDenied returns l, a limit using SlidingLog, whose refused requests
// are kept in the log too, so that hammering extends the ban.
func (l Limit) CountingDenied() Limit { return l.with(func(r *Rule) { r.CountDenied = true }) }

// Share returns l with f of its limit and its burst, for one of several
// processes that count apart: Share(0.25) on each of four. It must be that
// 0 < f ≤ 1; anything else gives an invalid Limit.
//
// Both are rounded down, so that the shares of all never add up to more than
// l, except that at least 1 is left of what was not 0: a limit of 2 shared by
// four lets each have 1. All else stays as it is, but a share of a limit without a
// name counts apart from the limit. A share is invalid if its burst is too large
// for its rate to be counted exactly.
func (l Limit) Share(f float64) Limit {
	r := *l.Rule()
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
		r.Burst = share(r.Burst, f)
	}
	if r.DelayAfter > 0 {
		r.DelayAfter = share(r.DelayAfter, f)
	}
	return compile(r)
}

// share returns f of n, rounded down but at least 1 of anything. The product of
// a decimal fraction may lie a little below the whole number it stands for, as
// 0.29 of 100 does; the difference of two machine numbers is no reason to lose
// one.
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

// Rule returns the compiled form, for stores. It is l's own and must not be
// written to.
func (l Limit) Rule() *Rule {
	if l.rule == nil {
		return &Rule{problem: unset}
	}
	return l.rule
}

// AsBucket returns the compiled form of a valid token or leaky bucket, and nil
// for every other limit. It is Rule and Valid in one look, for stores where
// nanoseconds matter.
func (l Limit) AsBucket() *Rule {
	if l.rule != nil && l.rule.bucket {
		return l.rule
	}
	return nil
}

// Equal reports whether l and other allow the same, however they were written and
// whatever they count under. Without a name, equal limits share a count, and others
// do not; but shares of different limits count apart.
func (l Limit) Equal(other Limit) bool {
	a, b := l.Rule(), other.Rule()
	if a == b || a.Unlimited && b.Unlimited {
		return true
	}
	return a.meaning(0) == b.meaning(0) && a.problem == b.problem && a.Unlimited == b.Unlimited
}

// N returns the limit per period.
func (l Limit) N() int64 { return l.Rule().Limit }

// Period returns the length of the period; for a calendar window the nominal
// one (a month has 30 days, a year 365), for [Concurrent] how long a lease lasts.
func (l Limit) Period() time.Duration { return time.Duration(l.Rule().Period) * time.Microsecond }

// Capacity returns the most that could ever pass at once: the burst of a
// bucket, the limit of a window. It is what Decision.Limit reports.
func (l Limit) Capacity() int64 { return l.Rule().Most() }

// Algorithm returns how the limit counts.
func (l Limit) Algorithm() Algorithm { return l.Rule().Algorithm }

// IsUnlimited reports whether l allows everything.
func (l Limit) IsUnlimited() bool { return l.Rule().Unlimited }

// Valid reports whether l can be enforced; [Limit.Validate] says why not.
func (l Limit) Valid() bool { return l.rule != nil && l.rule.problem == valid }

// Validate returns nil or an error that wraps [ErrInvalidLimit].
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
		b.WriteString(" concurrent, lease " + shortDuration(l.Period()))
		return b.String()
	}
	b.WriteByte('/')
	if r.Calendar != NoCalendar {
		b.WriteString(r.Calendar.String() + " " + r.Algorithm.String() + " in " + r.Zone.String())
		return b.String()
	}
	b.WriteString(unitOf(l.Period()) + " " + r.Algorithm.String())
	switch {
	case r.Algorithm == SlidingBuckets:
		b.WriteString(" of " + strconv.Itoa(int(r.Buckets)) + ", " + r.Edge.String())
	case r.Anchor == AnchorFirstRequest:
		b.WriteString(" from the first request")
	case r.CountDenied:
		b.WriteString(" counting refusals")
	case r.Burst != r.Limit:
		b.WriteString(" burst " + strconv.FormatInt(r.Burst, 10))
	}
	if r.DelayAfter > 0 {
		b.WriteString(" delay after " + strconv.FormatInt(r.DelayAfter, 10))
	}
	if r.MaxWait > 0 {
		b.WriteString(" wait at most " + shortDuration(time.Duration(r.MaxWait)*time.Microsecond))
	}
	return b.String()
}

// unitOf names a period as rates do: second, minute, hour, day, or else 10m.
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

// shortDuration is d without what is zero at its end: 10m, not 10m0s.
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
