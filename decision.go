package headgate

import (
	"math"
	"time"
)

// Never is the RetryAfter of a cost that can never fit into its limit.
const Never = time.Duration(math.MaxInt64)

// Reason says why a decision came out as it did.
type Reason uint8

const (
	// OK says that it fits into the limit.
	OK Reason = iota
	// Limited means not now, but at RetryAfter.
	Limited
	// TooLarge means never: the cost exceeds what could ever fit.
	TooLarge
	// FailOpen says that the store could not answer and the policy lets
	// requests pass.
	FailOpen
	// FailClosed says that the store could not answer and the policy refuses.
	FailClosed
	// Fallback says that the store could not answer; this process's own memory
	// did.
	Fallback
	// Cached is a refusal by the deny cache, which did not ask the store.
	Cached
	// Shadow says that the limit would have refused, but is only observed.
	Shadow
	// NoLimit says that the limit is Unlimited.
	NoLimit
	// Banned says that an operator has banned the key, until RetryAfter. The
	// limit was not asked.
	Banned
	// Expired says that there is no such lease any more to renew.
	Expired
)

// String returns the name used in JSON, such as limited.
func (r Reason) String() string {
	if r <= Expired {
		return [...]string{
			OK: "ok", Limited: "limited", TooLarge: "too_large", FailOpen: "fail_open", FailClosed: "fail_closed",
			Fallback: "fallback", Cached: "cached", Shadow: "shadow", NoLimit: "unlimited", Banned: "banned",
			Expired: "expired",
		}[r]
	}
	return numbered("reason", uint8(r))
}

// Decision is the answer of one limit to one request.
//
// For a token bucket of 4 refilled 4 per minute, asked five times at once, the
// fourth answer is {Allowed: true, Limit: 4, Remaining: 0, Granted: 1,
// ResetAfter: 1m} and the fifth {Allowed: false, Reason: Limited, Limit: 4,
// Remaining: 0, RetryAfter: 15s, ResetAfter: 1m}.
type Decision struct {
	Allowed bool   // reports whether the request may pass
	Reason  Reason // says why
	// Limit is what Remaining counts down from: the burst of a bucket, the
	// limit of a window.
	Limit int64
	// Remaining is how much more would pass at once, after this decision. For
	// Peek it is what is there now. Credit from Grant is included.
	Remaining int64
	// Granted is how much was taken: the cost, or less from AllowUpTo, or 0
	// when nothing was.
	Granted int64
	// RetryAfter is 0 when allowed; otherwise the same request would pass at
	// exactly that time from now if nobody else takes in between, and Never
	// when it cannot pass at all. Of a limit of [Concurrent] it is when enough
	// leases end by themselves; they may be released before.
	RetryAfter time.Duration
	// ResetAfter is when the state equals that of an unused key again, if
	// nobody takes in between.
	ResetAfter time.Duration
	// Delay is how long an admitted request has to wait for its turn: the
	// leaky bucket's queue, or Reserve's booking.
	Delay time.Duration
	// Lease names what was taken of a limit of [Concurrent], for Release and
	// Renew; 0 if nothing was. No two leases of a key have the same name.
	Lease int64
}

// Tighter reports whether d constrains its caller more than other does: a
// refusal before an admission, among refusals the longer RetryAfter, among
// admissions the smaller Remaining and then the later ResetAfter.
func (d Decision) Tighter(other Decision) bool {
	switch {
	case d.Allowed != other.Allowed:
		return !d.Allowed
	case !d.Allowed && d.RetryAfter != other.RetryAfter:
		return d.RetryAfter > other.RetryAfter
	case d.Remaining != other.Remaining:
		return d.Remaining < other.Remaining
	}
	return d.ResetAfter > other.ResetAfter
}
