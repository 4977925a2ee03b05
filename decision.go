package headgate

import (
	"time"

	"github.com/headgate/headgate/store"
)

// Never is the RetryAfter of a cost that can never fit its limit.
const Never = store.Never

// Reason says why a Decision was made. Those that only a server gives, for bans and rules in
// shadow mode, are in package store.
type Reason = store.Reason

const (
	// ReasonOK means that the cost fits the limit.
	ReasonOK Reason = store.ReasonOK
	// ReasonLimited means that the request may pass at RetryAfter, not now.
	ReasonLimited Reason = store.ReasonLimited
	// ReasonTooLarge means that the cost exceeds what can ever fit.
	ReasonTooLarge Reason = store.ReasonTooLarge
	// ReasonFailOpen means that the store could not answer and the policy lets requests pass.
	ReasonFailOpen Reason = store.ReasonFailOpen
	// ReasonFailClosed means that the store could not answer and the policy refuses, or that
	// the request was invalid.
	ReasonFailClosed Reason = store.ReasonFailClosed
	// ReasonFallback means that the store could not answer, and the fallback store did.
	ReasonFallback Reason = store.ReasonFallback
	// ReasonCached is a refusal from the deny cache; the store was not asked.
	ReasonCached Reason = store.ReasonCached
	// ReasonNoLimit means that the limit is Unlimited.
	ReasonNoLimit Reason = store.ReasonNoLimit
	// ReasonExpired means that the lease to renew no longer exists.
	ReasonExpired Reason = store.ReasonExpired
	// ReasonHeadroom means that the request would pass if it did not have to leave a part of
	// the limit to more important ones.
	ReasonHeadroom Reason = store.ReasonHeadroom
)

// Decision is the answer of one limit to one request.
//
// For example, a token bucket of 4 that refills 4 per minute is asked five times at
// once. The fourth answer is {Allowed: true, Limit: 4, Remaining: 0, Granted: 1,
// ResetAfter: 1m} and the fifth {Allowed: false, Reason: ReasonLimited, Limit: 4, Remaining:
// 0, RetryAfter: 15s, ResetAfter: 1m}.
type Decision struct {
	Allowed bool   // reports whether the request may pass
	Reason  Reason // says why
	// Limit is the maximum of Remaining: the burst of a bucket, the limit of a window.
	Limit int64
	// Remaining is how much more would pass at once after this decision, including
	// granted credit. For Peek it is what is available now.
	Remaining int64
	// Granted is how much was taken: the cost, less than that from AllowUpTo, or 0.
	Granted int64
	// RetryAfter is 0 if the request is allowed. Otherwise it is exactly how long to
	// wait until the same request would pass if no other request takes in between, or
	// Never if it can never pass. For a limit of [Concurrent] it is when enough leases
	// end if none is released earlier.
	RetryAfter time.Duration
	// ResetAfter is how long it takes until the state equals that of an unused key if
	// no other request takes in between. For a limit in the caller's own zone
	// ([Limit.WithZone]) it is how long it takes until the whole limit is available.
	ResetAfter time.Duration
	// Delay is how long an allowed request must wait for its turn: in the queue of a
	// leaky bucket, or for what Reserve has booked.
	Delay time.Duration
	// Lease names what was taken of a limit of [Concurrent], for Release and Renew; 0
	// if nothing was taken. All leases of a key have different names.
	Lease int64
	// CountsUntil is when what was taken no longer counts against the limit, in
	// microseconds since the Unix epoch by the store's clock; 0 if nothing was taken. A
	// Refund finds the take by it; see package store.
	CountsUntil int64
}

// String returns d as a sentence for people, such as "refused: 0 of 5 left, retry after
// 12s". It has no names, keys or leases. The text may change; see Reason for programs.
func (d Decision) String() string { return store.Decision(d).String() }
