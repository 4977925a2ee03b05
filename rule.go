package headgate

import (
	"math/bits"
	"time"
)

// Rule is a [Limit] compiled to the integers that the algorithms use; see [Limit.Rule].
// Every quantity is below 2^53.
//
// For the buckets, time is in ticks. N tokens per P ticks are reduced by their greatest
// common divisor to N' and P'. The bucket leaks Leak = N' units per tick, a token is
// Token = P' units, and Capacity = Burst·P' units, so the state needs no division. If
// Capacity would exceed 2^52, the tick is coarser (a millisecond, a second), or the
// rate is rounded down by at most one part in a million; a limit that fits neither way
// is invalid. If the bucket refills in steps, a step is a tick.
type Rule struct {
	// Algorithm, Anchor, Edge and Calendar are those of the Limit.
	Algorithm   Algorithm
	Anchor      Anchor
	Edge        Edge
	Calendar    CalendarUnit
	CountDenied bool // refused requests count in a window
	OwnZone     bool // Zone is the caller's own, which may change; see Limit.InZone
	// Unlimited allows everything; all other fields are then zero.
	Unlimited bool
	burstSet  bool
	bucket    bool // says that it is a valid bucket; see Limit.AsBucket
	// bucketsSet is false if Buckets is the default.
	bucketsSet bool
	leaseSet   bool
	part       bool // made by Share or Part: a step may be larger than its rounded burst

	Limit, Period int64 // Limit is N, Period its length in microseconds
	Burst         int64 // the capacity of a bucket in tokens; Limit if none was given
	// DelayAfter is how many places of a leaky bucket's queue are served at once; 0
	// means unset, which is the same as 1. MaxWait is the longest wait for a turn in
	// microseconds; 0 means no limit.
	DelayAfter, MaxWait int64
	// RefillEvery is the length of a step in microseconds if a token bucket refills in
	// steps, otherwise 0.
	RefillEvery int64
	Token       int64 // the size of one token in units
	Leak        int64 // how many units a bucket drains in one tick
	Capacity    int64 // is Burst in units
	// Free is, for a leaky bucket, how many units may be used before a request without
	// making it wait. Late is how many before it waits too long.
	Free, Late int64
	// Tick is, for a bucket, the length of a tick in microseconds; for
	// SlidingBuckets, the width of one sub-window.
	Tick    int64
	Zone    *time.Location // the zone of a calendar window
	Buckets uint16         // the number of sub-windows
	// Age is how long a block of tokens may be used, in microseconds; 0 for a limit
	// without blocks. See Limit.InBlocks.
	Age int64

	// blockAge and blockOver are the settings of InBlocks, in microseconds and in
	// millionths; kept is what they took out of the burst.
	blockAge, blockOver int64
	kept                int64
	// inRegions, home and slack are the settings of InRegions, slack in millionths.
	inRegions bool
	home      string
	slack     int64

	// name is the name set by Named. mark separates the counts of this limit from those
	// of others. share is the mark of the limit that this is a share of; see Space.
	name    string
	mark    uint64
	share   uint64
	problem problem
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
		return !r.CountDenied && !r.Unlimited
	case LeakyBucket, Concurrency, Distinct:
	}
	return false
}

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

// compile returns the Limit of r with its derived fields and its problem filled in.
func compile(r Rule) Limit {
	l := Limit{rule: &r}
	defer r.setMark()
	// What an earlier call derived for another algorithm is not a setting of the user.
	r.Token, r.Leak, r.Capacity, r.Tick, r.Free, r.Late = 0, 0, 0, 0, 0, 0
	if !r.bucketsSet {
		r.Buckets = 0
	}
	r.bucket = false
	r.Burst, r.kept, r.Age = r.Burst+r.kept, 0, 0
	r.problem = r.check()
	if r.problem != valid || r.Unlimited {
		return l
	}
	if !r.burstSet {
		r.Burst = r.Limit
	}
	if r.problem = r.checkRegions(); r.problem != valid {
		return l
	}
	if r.problem = r.compileBlocks(); r.problem != valid {
		return l
	}
	switch r.Algorithm {
	case TokenBucket, LeakyBucket:
		if r.overflows() && !r.part {
			r.problem = badStep
		} else if r.bucket = r.compileBucket(); !r.bucket {
			r.problem = badRounding
		} else if r.Algorithm == LeakyBucket {
			r.compileQueue()
		} else if r.kept > 0 && r.Tick > 1 && r.RefillEvery == 0 {
			// It turned out to need coarse ticks.
			if r.problem = r.keep(); r.problem == valid && !r.compileBucket() {
				r.problem = badRounding
			}
		}
	case SlidingBuckets:
		if r.Buckets == 0 {
			r.Buckets = uint16(min(DefaultBuckets, r.Period))
		}
		r.Tick = (r.Period + int64(r.Buckets) - 1) / int64(r.Buckets)
	case FixedWindow, SlidingLog, SlidingWindow, Concurrency, Distinct:
	}
	return l
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
	case r.leaseSet && r.Algorithm != Concurrency:
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
	case r.burstSet && !isBucket:
		return strayBurst
	case r.burstSet && (r.Burst < 0 || r.Burst > MaxLimit || r.Burst == 0 && r.Limit > 0):
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
	case r.CountDenied && (isBucket || r.Algorithm >= Concurrency):
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
func (r *Rule) compileQueue() {
	const most = 1<<53 - 1
	r.Late = most
	if r.DelayAfter < 0 || r.DelayAfter > max(r.Burst, 1) {
		r.problem = badDelayAfter
		return
	}
	r.Free = (max(r.DelayAfter, 1) - 1) * r.Token
	if r.MaxWait == 0 {
		return
	}
	hi, drained := bits.Mul64(uint64(r.MaxWait/r.Tick), uint64(r.Leak))
	if hi == 0 && drained < uint64(most-r.Free) {
		r.Late = r.Free + int64(drained)
	}
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

// nominal returns the usual length of a calendar window in microseconds.
func nominal(u CalendarUnit) int64 {
	const minute = int64(time.Minute / time.Microsecond)
	const day = 24 * 60 * minute
	if u > Year {
		return 0
	}
	return [...]int64{Minute: minute, Hour: 60 * minute, Day: day, Week: 7 * day, Month: 30 * day, Year: 365 * day}[u]
}
