package failsafe

import (
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/enum"
)

// The defaults of Options.
const (
	DefaultTimeout  = 100 * time.Millisecond
	DefaultFailures = 5
	DefaultOpenFor  = 50 * time.Millisecond
	DefaultLongest  = 250 * time.Millisecond
	DefaultMaxAge   = 250 * time.Millisecond
)

// ErrOpen is returned at once while the circuit breaker is open. It is a
// headgate.ErrUnavailable, as is ErrTimeout.
var ErrOpen = fmt.Errorf("%w: circuit breaker open", headgate.ErrUnavailable)

// ErrTimeout is returned when the store has not answered within the Timeout.
var ErrTimeout = fmt.Errorf("%w: no answer in time", headgate.ErrUnavailable)

// errStuck is returned when so many calls are stuck in the store that no more
// are started.
var errStuck = fmt.Errorf("%w: too many calls are stuck in the store", headgate.ErrUnavailable)

// State is what the circuit breaker thinks of the store.
type State uint8

const (
	// Closed is the state at the start: the store answers and is asked.
	Closed State = iota
	// Open is when the store is taken for dead and is only probed.
	Open
)

// String returns closed or open.
func (s State) String() string { return enum.Name(s, "state", "closed", "open") }

// Change is a change of state.
type Change struct {
	State State         // the new one
	Err   error         // the failure that opened the breaker; nil when it closes
	After time.Duration // how long the previous state had lasted
}

// Breaker says when a store is taken for dead and how it is probed.
type Breaker struct {
	// Failures is how many calls in a row must have failed before it opens,
	// 5 by default.
	Failures int
	// OpenFor is how long it stays open before the first probe, 50 ms by
	// default. After each probe that fails it is twice as long.
	OpenFor time.Duration
	// Longest bounds the doubling, 250 ms by default: with the Jitter, no more
	// than 312 ms after the store is back it is found to be.
	Longest time.Duration
	// Jitter moves each probe by up to this share of the wait to either side,
	// so that many processes do not all probe at once. It is 0.25 by default,
	// at most 1; a negative one stands for none.
	Jitter float64
}

// DenyCache remembers refusals. One answers Take and TakeUpTo of the same key,
// scope, limit and cost, and of a fixed window those of a larger cost, until it may
// pass or MaxAge is over, with Reason headgate.Cached and a RetryAfter that counts
// down. Peek
// and Reserve always ask, and so do limits that count refusals. A Refund,
// Grant, Reset or Charge of the key through this Store forgets its refusals;
// one from another process shows after MaxAge at the latest.
//
// An all-or-nothing Do of which one op is known to be refused is refused too, if
// the store has said about the others, at most MaxAge ago and for the same
// costs, that they would have let it pass: it is what they say, with Reason
// headgate.Cached. Otherwise the store is asked, so no answer is made up.
type DenyCache struct {
	// Entries bounds how many refusals are remembered, about 100 bytes each.
	// It is rounded up to a power of two. With 0 there is no cache.
	Entries int
	MaxAge  time.Duration // how long a refusal is believed, 250 ms by default
}

// Options configure a Store. The zero Options are good defaults without a deny
// cache.
type Options struct {
	Timeout   time.Duration // how long a call may wait, 100 ms by default
	Breaker   Breaker       // says when the store is taken for dead
	DenyCache DenyCache     // remembers refusals
	// OnChange, if set, is called on every change of the breaker's state, in
	// order, on the path of a request: it must not block.
	OnChange func(Change)
	// IgnoresContext says that the store may go on waiting when its ctx is
	// done. Then each call runs in a goroutine of its own, which costs about
	// a microsecond. Without it only calls in doubt do: those after a failure
	// or a pause, and those beside very many others.
	IgnoresContext bool
}

// withDefaults fills in what is not set.
func (o Options) withDefaults() Options {
	o.Timeout = positive(o.Timeout, DefaultTimeout)
	o.Breaker.OpenFor = positive(o.Breaker.OpenFor, DefaultOpenFor)
	o.Breaker.Longest = max(positive(o.Breaker.Longest, DefaultLongest), o.Breaker.OpenFor)
	o.DenyCache.MaxAge = positive(o.DenyCache.MaxAge, DefaultMaxAge)
	o.Breaker.Failures = positive(o.Breaker.Failures, DefaultFailures)
	switch j := o.Breaker.Jitter; {
	case j == 0:
		o.Breaker.Jitter = 0.25
	case !(j > 0):
		o.Breaker.Jitter = 0
	default:
		o.Breaker.Jitter = min(j, 1)
	}
	return o
}

func positive[T ~int | ~int64](d, otherwise T) T {
	if d > 0 {
		return d
	}
	return otherwise
}

// Stats are counters since New, and what is now.
type Stats struct {
	State State // the breaker's
	// Failures is how many calls the store failed. Of these, Timeouts had no
	// answer in time, Full found it without room, ReadOnly found that it writes
	// nothing, and Refused got an error about their question, not about the
	// store. The last three say that the store is there.
	Failures, Timeouts, Full, ReadOnly, Refused uint64
	// FailedFast is how many calls were not put to the store because the
	// breaker was open.
	FailedFast uint64
	Opened     uint64 // how often the breaker opened
	Probes     uint64 // how many calls were let through an open breaker
	CacheHits  uint64 // how many ops the deny cache answered
	// Stuck is how many calls are still in the store although their callers
	// have been answered.
	Stuck int
}
