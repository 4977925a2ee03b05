package store

import (
	"math/bits"
	"time"

	"github.com/headgate/headgate/internal/base/plain"
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
	// DefaultLease is how long a lease of a concurrency limit lasts unless it is given.
	DefaultLease = time.Minute
	// MaxBuckets is the largest number of sub-windows of SlidingBuckets.
	MaxBuckets = 512
	// DefaultBuckets is the number of sub-windows unless it is given.
	DefaultBuckets = 60
)

// Settings are what a limit was given. [Compile] makes a [Rule] of them. Times are in
// microseconds.
type Settings struct {
	Name         string // to count under; empty for none
	Algorithm    Algorithm
	Anchor       Anchor
	Edge         Edge
	Calendar     CalendarUnit
	CountRefused bool // refused requests count in a window
	OwnZone      bool // Zone is the caller's own, which may change
	// Unlimited allows everything, whatever the other settings are.
	Unlimited bool
	// HasBurst and HasLease say that Burst, or Period as the time of a lease, was given.
	HasBurst, HasLease bool
	Buckets            uint16 // the number of sub-windows; 0 for the default

	Limit, Period int64 // at most Limit in a Period
	Burst         int64 // the capacity of a bucket in tokens, with HasBurst
	// DelayAfter is how many places of a leaky bucket's queue are served at once; 0
	// means unset, which is the same as 1. MaxWait is the longest wait for a turn; 0
	// means no limit.
	DelayAfter, MaxWait int64
	// RefillEvery is the length of a step if a token bucket refills in steps,
	// otherwise 0.
	RefillEvery int64
	Zone        *time.Location // the zone of a calendar window

	// blockAge and blockOver are those of InBlocks, blockOver in millionths.
	blockAge, blockOver int64
	// inRegions, home and slack are those of InRegions, slack in millionths.
	inRegions bool
	home      string
	slack     int64
	// part is set by Share and Part: a step may be larger than its rounded burst. share is
	// the mark of the limit that this is a share of; see Rule.Space.
	part  bool
	share uint64
}

// Rule is a limit compiled to the integers that the algorithms use: what a [Limit] of
// package headgate is to a store. Every quantity is below 2^53. Rules are shared, and
// must not be changed.
//
// For the buckets, time is in ticks. N tokens per P ticks are reduced by their greatest
// common divisor to N' and P'. The bucket leaks Leak = N' units per tick, a token is
// Token = P' units, and Capacity = Burst·P' units, so the state needs no division. If
// Capacity would exceed 2^52, the tick is coarser (a millisecond, a second), or the
// rate is rounded down by at most one part in a million; a limit that fits neither way
// is invalid. If the bucket refills in steps, a step is a tick.
type Rule struct {
	Settings // Burst and Buckets below are what they compile to

	Burst    int64 // the capacity of a bucket in tokens; Limit if none was given
	Token    int64 // the size of one token in units
	Leak     int64 // how many units a bucket drains in one tick
	Capacity int64 // is Burst in units
	// Tick is, for a bucket, the length of a tick in microseconds; for
	// SlidingBuckets, the width of one sub-window.
	Tick int64
	// Free is, for a leaky bucket, how many units may be used before a request without
	// making it wait. Late is how many before it waits too long.
	Free, Late int64
	Buckets    uint16 // the number of sub-windows
	bucket     bool   // says that it is a valid bucket; see AsBucket
	// Age is how long a block of tokens may be used, in microseconds; 0 for a limit
	// without blocks. See [Blocks].
	Age int64

	kept    int64  // what blocks took out of the burst
	mark    uint64 // separates the counts of this limit from those of others; see Space
	problem problem
}

// unsetRule is the rule of an op without one.
var unsetRule = &Rule{problem: unset} //nolint:gochecknoglobals // never changes

// Unset returns the rule of the zero Limit, which is invalid.
func Unset() *Rule { return unsetRule }

// With returns a rule of the same settings, with something changed.
func (r *Rule) With(change func(*Settings)) *Rule {
	s := r.Settings
	change(&s)
	return Compile(s)
}

// AsBucket returns r if it is a valid token or leaky bucket, and nil otherwise, also for
// nil. It is for stores where nanoseconds matter.
func (r *Rule) AsBucket() *Rule {
	if r != nil && r.bucket {
		return r
	}
	return nil
}

// Valid reports whether r can be enforced; [Rule.Validate] says why not.
func (r *Rule) Valid() bool { return r != nil && r.problem == valid }

// Validate returns nil, or an error that wraps [ErrInvalidLimit].
func (r *Rule) Validate() error {
	if r == nil {
		r = unsetRule
	}
	if r.problem == valid {
		return nil
	}
	return plain.Error(ErrInvalidLimit, string(r.problem))
}

// Equal reports whether r and other allow the same, whatever their names.
func (r *Rule) Equal(other *Rule) bool {
	if r == other || r.Unlimited && other.Unlimited {
		return true
	}
	return r.meaning(0) == other.meaning(0) && r.Age == other.Age && r.inRegions == other.inRegions && r.home == other.home && r.slack == other.slack && r.zoneMark() == other.zoneMark() && r.problem == other.problem && r.Unlimited == other.Unlimited
}

// Most returns the largest cost that can ever pass.
func (r *Rule) Most() int64 {
	if r.Algorithm <= LeakyBucket {
		return r.Burst
	}
	return r.Limit
}

// CanDraw reports whether a [Draw] can succeed. A queue promises spacing, a concurrency
// limit counts what is in progress, one of distinct values must see them, and a window
// that counts refusals those: for these every decision is made by the store.
func (r *Rule) CanDraw() bool { return r.Limit > 0 && r.divides() }

func (r *Rule) divides() bool {
	switch r.Algorithm {
	case TokenBucket, FixedWindow, SlidingLog, SlidingWindow, SlidingBuckets:
		return !r.CountRefused && !r.Unlimited
	case LeakyBucket, Concurrency, Distinct:
	}
	return false
}

// CanKeep reports whether an [Op.Leave] can keep a part of the limit: not where refusals
// count, which would use it up, nor of distinct values, which cost nothing again. Of a limit
// in blocks, an op with a Leave is always decided by the store.
func (r *Rule) CanKeep() bool { return !r.CountRefused && r.Algorithm != Distinct }

// errKeepsNothing is the error of an op with a Leave and a limit that cannot keep it.
var errKeepsNothing = plain.Error(ErrInvalidLimit, "a limit of distinct values, or that counts refusals, keeps no part for a higher class")

// problem is why a limit is invalid. The numbers in the texts are MaxLimit, MaxBuckets,
// MaxLog, MaxConcurrent, MaxDistinct and MaxPeriod.
type problem string

const (
	valid          problem = ""
	unset          problem = "unset (use Unlimited for no limit)"
	badLimit       problem = "the limit must be from 0 to 1099511627776"
	badPeriod      problem = "the period must be a whole number of microseconds, more than 0 and at most 407 days"
	badBurst       problem = "the burst must be from 1 to 1099511627776"
	badRounding    problem = "the burst is too large to count so slow a rate exactly"
	badCalendar    problem = "a calendar window must be a minute, hour, day, week, month or year, and needs fixed_window or distinct, anchored to the clock"
	badBuckets     problem = "the number of sub-windows must be from 1 to 512, each at least 1 microsecond long"
	badAlgorithm   problem = "unknown algorithm, anchor or edge"
	badLog         problem = "a sliding log keeps every request: its limit must be at most 1048576"
	strayBurst     problem = "only token_bucket and leaky_bucket have a burst"
	strayAnchor    problem = "only fixed_window and distinct have an anchor"
	strayBuckets   problem = "only sliding_buckets has sub-windows"
	strayDenied    problem = "only fixed_window, sliding_log, sliding_window and sliding_buckets can count refused requests"
	badShare       problem = "a share must be more than 0 and at most 1"
	badDelayAfter  problem = "the number of requests served without delay must be from 1 to the burst"
	badMaxWait     problem = "the maximum wait must be a whole number of microseconds, more than 0 and at most 407 days"
	badRefill      problem = "the time between two refills must be a whole number of microseconds, more than 0 and at most 407 days"
	badStep        problem = "a refill adds more tokens than the burst, so the rate is never reached: set a larger burst or refill more often"
	strayRefill    problem = "only token_bucket refills in steps"
	strayDelay     problem = "only leaky_bucket makes requests wait"
	badConcurrency problem = "a concurrency limit must be at most 65536"
	badDistinct    problem = "a limit of distinct values must be at most 1073741824"
	strayLease     problem = "only concurrency has leases"
)

// Compile returns the rule of s. If s cannot be enforced, [Rule.Validate] says why.
func Compile(s Settings) *Rule {
	if s.Name != "" {
		s.share = 0
	}
	r := &Rule{Settings: s, Burst: s.Burst, Buckets: s.Buckets}
	r.problem = r.check()
	if r.problem == valid && !s.Unlimited {
		r.problem = r.derive()
	}
	r.bucket = r.problem == valid && !s.Unlimited && s.Algorithm <= LeakyBucket
	r.setMark()
	return r
}

// derive fills in what the algorithms use.
func (r *Rule) derive() problem {
	if !r.HasBurst {
		r.Burst = r.Limit
	}
	if p := r.checkRegions(); p != valid {
		return p
	}
	if p := r.compileBlocks(); p != valid {
		return p
	}
	switch r.Algorithm {
	case TokenBucket, LeakyBucket:
		if r.overflows() && !r.part {
			return badStep
		}
		return r.deriveBucket()
	case SlidingBuckets:
		if r.Buckets == 0 {
			r.Buckets = uint16(min(DefaultBuckets, r.Period))
		}
		r.Tick = (r.Period + int64(r.Buckets) - 1) / int64(r.Buckets)
	case FixedWindow, SlidingLog, SlidingWindow, Concurrency, Distinct:
	}
	return valid
}

func (r *Rule) deriveBucket() problem {
	if !r.compileBucket() {
		return badRounding
	}
	switch {
	case r.Algorithm == LeakyBucket:
		return r.compileQueue()
	case r.kept > 0 && r.Tick > 1 && r.RefillEvery == 0: // it turned out to need coarse ticks
		if p := r.keep(); p != valid {
			return p
		}
		if !r.compileBucket() {
			return badRounding
		}
	}
	return valid
}

// check returns the first problem in the settings.
func (r *Rule) check() problem {
	isBucket := r.Algorithm <= LeakyBucket
	switch {
	case r.Unlimited:
		return valid
	case r.Algorithm > Distinct || r.Anchor > AnchorFirstRequest || r.Edge > EdgeStrict:
		return badAlgorithm
	case r.Limit < 0 || r.Limit > MaxLimit:
		return badLimit
	case r.HasLease && r.Algorithm != Concurrency:
		return strayLease
	case r.Algorithm == Concurrency && r.Limit > MaxConcurrent:
		return badConcurrency
	case r.Algorithm == SlidingLog && r.Limit > MaxLog:
		return badLog
	case r.Algorithm == Distinct && r.Limit > MaxDistinct:
		return badDistinct
	case r.Zone != nil && (r.Calendar == NoCalendar || r.Calendar > Year || !r.hasWindows() || r.Anchor != AnchorClock):
		return badCalendar
	case r.Period <= 0 || r.Period > int64(MaxPeriod/time.Microsecond):
		return badPeriod
	case r.HasBurst && !isBucket:
		return strayBurst
	case r.HasBurst && (r.Burst < 0 || r.Burst > MaxLimit || r.Burst == 0 && r.Limit > 0):
		return badBurst
	case (r.DelayAfter != 0 || r.MaxWait != 0) && r.Algorithm != LeakyBucket:
		return strayDelay
	case r.MaxWait < 0 || r.MaxWait > int64(MaxPeriod/time.Microsecond):
		return badMaxWait
	case r.RefillEvery != 0 && r.Algorithm != TokenBucket:
		return strayRefill
	case r.RefillEvery < 0 || r.RefillEvery > int64(MaxPeriod/time.Microsecond):
		return badRefill
	case r.Anchor != AnchorClock && !r.hasWindows():
		return strayAnchor
	case r.Buckets != 0 && r.Algorithm != SlidingBuckets:
		return strayBuckets
	case r.Buckets > MaxBuckets || int64(r.Buckets) > r.Period:
		return badBuckets
	case r.CountRefused && (isBucket || r.Algorithm >= Concurrency):
		return strayDenied
	}
	return valid
}

// hasWindows reports whether r counts in windows that follow each other.
func (r *Rule) hasWindows() bool { return r.Algorithm == FixedWindow || r.Algorithm == Distinct }

// overflows reports whether a step refills more than the burst.
func (r *Rule) overflows() bool {
	gainHi, gainLo := bits.Mul64(uint64(r.Limit), uint64(r.RefillEvery))
	roomHi, roomLo := bits.Mul64(uint64(r.Burst), uint64(r.Period))
	return r.Limit > 0 && (gainHi > roomHi || gainHi == roomHi && gainLo > roomLo)
}

// compileBucket fills in Token, Leak, Capacity and Tick, and reports whether
// the limit can be counted within one part in a million.
func (r *Rule) compileBucket() bool {
	r.Tick, r.Token, r.Leak, r.Capacity = 1, 1, 0, 0
	if r.Limit == 0 {
		// Nothing ever refills. With a burst but no rate, a bucket would be full once
		// and never again: refuse everything, as the limit says.
		r.Burst = 0
		return true
	}
	if r.RefillEvery > 0 {
		return r.compileTick(r.RefillEvery)
	}
	return r.compileTick(1) || r.compileTick(1_000) || r.compileTick(1_000_000)
}

// compileTick is compileBucket for a given tick.
func (r *Rule) compileTick(tick int64) bool {
	const most = 1 << 52
	// n tokens are gained in period ticks.
	g := gcd(r.Limit, r.Period)
	period := r.Period / g
	common := gcd(tick, period)
	period /= common
	hi, product := bits.Mul64(uint64(r.Limit/g), uint64(tick/common))
	if hi != 0 || product > 1<<60 {
		return false
	}
	n := int64(product)
	if hi, size := bits.Mul64(uint64(r.Burst), uint64(period)); hi == 0 && size <= most && n <= most {
		r.Tick, r.Token, r.Leak, r.Capacity = tick, period, n, int64(size)
		return true
	}
	// The leak of the largest token that fits, rounded down, and then the smallest
	// token that is not faster than the requested rate.
	hi, lo := bits.Mul64(uint64(most/r.Burst), product)
	if hi >= uint64(period) {
		return false
	}
	quo, _ := bits.Div64(hi, lo, uint64(period))
	if quo == 0 || quo > most {
		return false
	}
	hi, lo = bits.Mul64(quo, uint64(period))
	size, rest := bits.Div64(hi, lo, product)
	if rest > 0 {
		size, rest = size+1, product-rest
	}
	if coarse(rest, quo, uint64(period)) {
		return false
	}
	r.Tick, r.Token, r.Leak, r.Capacity = tick, int64(size), int64(quo), r.Burst*int64(size)
	return true
}

// compileQueue fills in Free and Late. MaxWait is rounded down to whole ticks, so that
// no turn is later than that.
func (r *Rule) compileQueue() problem {
	const most = 1<<53 - 1
	r.Late = most
	if r.DelayAfter < 0 || r.DelayAfter > max(r.Burst, 1) {
		return badDelayAfter
	}
	r.Free = (max(r.DelayAfter, 1) - 1) * r.Token
	if r.MaxWait == 0 {
		return valid
	}
	hi, drained := bits.Mul64(uint64(r.MaxWait/r.Tick), uint64(r.Leak))
	if hi == 0 && drained < uint64(most-r.Free) {
		r.Late = r.Free + int64(drained)
	}
	return valid
}

// coarse reports whether leaving rem out of quo·period + rem, the requested rate, loses
// more than one part in a million.
func coarse(rem, quo, period uint64) bool {
	lostHi, lostLo := bits.Mul64(rem, 1_000_000)
	keptHi, keptLo := bits.Mul64(quo, period)
	return lostHi > keptHi || lostHi == keptHi && lostLo > keptLo
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Nominal returns the usual length of a calendar window in microseconds.
func Nominal(u CalendarUnit) int64 {
	const minute = int64(time.Minute / time.Microsecond)
	const day = 24 * 60 * minute
	if u > Year {
		return 0
	}
	return [...]int64{Minute: minute, Hour: 60 * minute, Day: day, Week: 7 * day, Month: 30 * day, Year: 365 * day}[u]
}

// Micros returns d in microseconds, or -1 if it is not a whole number of them.
func Micros(d time.Duration) int64 {
	if d%time.Microsecond != 0 {
		return -1
	}
	return int64(d / time.Microsecond)
}
