package history

import (
	"fmt"
	"slices"
	"time"
)

// The algorithms, as rules name them, and Places for a concurrency limit.
const (
	TokenBucket    = "token_bucket"
	LeakyBucket    = "leaky_bucket"
	FixedWindow    = "fixed_window"
	SlidingLog     = "sliding_log"
	SlidingWindow  = "sliding_window"
	SlidingBuckets = "sliding_buckets"
	Places         = "concurrency"
)

// Limit is a limit of the model. It shares no code with the limiter.
type Limit struct {
	Name      string
	Algorithm string
	// Count is the number per Period. For Places it is the number of slots, and Period the
	// length of a lease. Times are in microseconds, here and everywhere in this package.
	Count, Period int64
	Burst         int64  `json:",omitempty"` // the capacity of a bucket
	Buckets       int64  `json:",omitempty"` // number of sub-windows; must divide Period
	Edge          string `json:",omitempty"` // lenient, strict or weighted
}

// String returns the limit as rules write it.
func (l *Limit) String() string {
	return fmt.Sprintf("%s: %d/%s %s %s", l.Name, l.most(), time.Duration(l.Period)*time.Microsecond, l.Algorithm, l.Edge)
}

// most returns the largest cost that can be allowed.
func (l *Limit) most() int64 {
	if l.bucket() {
		return l.Burst
	}
	return l.Count
}

func (l *Limit) bucket() bool { return l.Algorithm == TokenBucket || l.Algorithm == LeakyBucket }

// unit returns what a request of cost 1 uses. Buckets count parts of a token, of which Count
// drain per microsecond.
func (l *Limit) unit() int64 {
	if l.bucket() {
		return l.Period
	}
	return 1
}

// horizon returns how long an entry can matter.
func (l *Limit) horizon() int64 {
	switch l.Algorithm {
	case SlidingWindow:
		return 2 * l.Period
	case SlidingBuckets:
		return l.Period + l.Period/l.Buckets
	case TokenBucket, LeakyBucket:
		return (l.Burst*l.Period + l.Count - 1) / l.Count
	}
	return l.Period
}

// charge is n tokens charged at a time.
type charge struct{ at, n int64 }

// used returns what charges use of the limit at now, in units. They may be in any order.
// Charges after now count as if made now.
func (l *Limit) used(charges []charge, now int64) int64 {
	switch l.Algorithm {
	case TokenBucket, LeakyBucket:
		return l.drained(charges, now)
	case FixedWindow:
		return counted(charges, func(at int64) bool { return at/l.Period >= now/l.Period })
	case SlidingWindow:
		k := now / l.Period
		current := counted(charges, func(at int64) bool { return at/l.Period >= k })
		previous := counted(charges, func(at int64) bool { return at/l.Period == k-1 })
		return current + previous*((k+1)*l.Period-now)/l.Period
	case SlidingBuckets:
		return l.inBuckets(charges, now)
	}
	return counted(charges, func(at int64) bool { return at+l.Period > now })
}

func counted(charges []charge, counts func(at int64) bool) (sum int64) {
	for _, c := range charges {
		if counts(c.at) {
			sum += c.n
		}
	}
	return sum
}

// drained returns the level of a bucket: the maximum, over all charges, of what came since
// that charge minus what has drained since.
func (l *Limit) drained(charges []charge, now int64) (most int64) {
	slices.SortFunc(charges, func(a, b charge) int { return int(min(max(b.at-a.at, -1), 1)) })
	sum := int64(0)
	for _, c := range charges { // latest first
		sum += c.n * l.Period
		most = max(most, sum-l.Count*(now-min(c.at, now)))
	}
	return most
}

func (l *Limit) inBuckets(charges []charge, now int64) int64 {
	width := l.Period / l.Buckets
	from := now - l.Period
	oldest := from / width
	within := counted(charges, func(at int64) bool { return at/width > oldest })
	edge := counted(charges, func(at int64) bool { return at/width == oldest })
	overlap := (oldest+1)*width - from
	switch {
	case l.Edge == "strict" || overlap == width:
		return within + edge
	case l.Edge == "lenient":
		return within
	}
	return within + edge*overlap/width
}
