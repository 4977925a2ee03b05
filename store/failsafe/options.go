package failsafe

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/base/enum"
	"github.com/headgate/headgate/store"
)

// The defaults of Options.
const (
	DefaultTimeout  = 100 * time.Millisecond
	DefaultFailures = 5
	DefaultOpenFor  = 50 * time.Millisecond
	DefaultLongest  = 250 * time.Millisecond
	DefaultMaxAge   = 250 * time.Millisecond
)

// ErrOpen is wrapped by the error that is returned at once while the circuit breaker is
// open, which ends with the store's last failure. It wraps store.ErrNotSent, and so
// store.ErrUnavailable.
var ErrOpen = fmt.Errorf("%w: circuit breaker open", store.ErrNotSent)

// ErrTimeout is returned when the store has not answered within the Timeout. It wraps
// store.ErrUnavailable.
var ErrTimeout = fmt.Errorf("%w: no answer in time", store.ErrUnavailable)

// errStuck is returned when too many calls are stuck in the store to start another.
var errStuck = fmt.Errorf("%w: too many calls are stuck in the store", store.ErrNotSent)

// State is the state of the circuit breaker.
type State uint8

const (
	// Closed is the state at the start: the store is healthy and called.
	Closed State = iota
	// Open means that the store is considered dead and only probed.
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

// Breaker configures when a store is considered dead and how it is probed.
type Breaker struct {
	// Failures is how many calls in a row must fail before it opens, 5 by default.
	Failures int
	// Silence is how long no call must have succeeded besides, the Timeout by default. For a
	// store of several servers it should be longer: while one of them is lost, answers of the
	// others may be rare.
	Silence time.Duration
	// OpenFor is how long it stays open before the first probe, 50 ms by default. It
	// doubles after each failed probe.
	OpenFor time.Duration
	// Longest limits the doubling, 250 ms by default. With Jitter, a store that is back
	// is noticed within 312 ms.
	Longest time.Duration
	// Jitter moves each probe by up to this share of the wait in either direction, so
	// that processes do not probe at the same time. It is 0.25 by default and at most
	// 1; a negative value means none.
	Jitter float64
}

// DenyCache remembers refusals. An entry answers Take and TakeUpTo of the same key,
// scope, limit and cost (for a fixed window also of a larger cost) until the request
// may pass or MaxAge is over. The answer has the Reason store.ReasonCached, and its
// RetryAfter counts down. Peek and Reserve always ask the store, as do limits that
// count refusals. A Refund, Grant, Reset or Charge through this Store drops the key's
// entries at once; through another process it takes effect within MaxAge.
//
// An all-or-nothing Do with a refused op is answered from the cache only if, at most
// MaxAge ago and for the same costs, the store has said that the other ops would pass.
type DenyCache struct {
	// Entries limits the number of remembered refusals, about 100 bytes each. It is
	// rounded up to a power of two. With 0 there is no cache.
	Entries int
	MaxAge  time.Duration // how long a refusal is kept, 250 ms by default
}

// Options configure a Store. The zero Options are good defaults, without a deny cache.
type Options struct {
	Timeout   time.Duration // how long a call may wait, 100 ms by default
	Breaker   Breaker       // when the store is considered dead
	DenyCache DenyCache     // remembers refusals
	// OnChange, if set, is called on every change of the breaker's state, in order,
	// during a request: it must not block.
	OnChange func(Change)
	// IgnoresContext says that the store may not return when its ctx is done. Each call
	// then runs in its own goroutine, which costs about a microsecond. Without it only
	// calls in doubt do: after a failure or a pause, or if very many run at once.
	IgnoresContext bool
}

// withDefaults fills in what is not set.
func (o Options) withDefaults() Options {
	o.Timeout = positive(o.Timeout, DefaultTimeout)
	o.Breaker.Silence = positive(o.Breaker.Silence, o.Timeout)
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

// Stats are counters since New, and the current state.
type Stats struct {
	State State // state of the circuit breaker
	// Failures is how many calls failed. Of these, Timeouts got no answer in time, Full
	// found the store out of memory, ReadOnly found it read-only, and Refused got an
	// error about their own request. The last three show that the store is alive.
	Failures, Timeouts, Full, ReadOnly, Refused uint64
	// FailedFast is how many calls were not sent because the breaker was open.
	FailedFast uint64
	Opened     uint64 // how often the breaker opened
	Probes     uint64 // how many calls were let through an open breaker
	CacheHits  uint64 // how many ops the deny cache answered
	// Stuck is how many calls are still in the store although their callers have an
	// answer.
	Stuck int
}
