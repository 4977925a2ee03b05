package headgate

import (
	"math"
	"strconv"
	"time"
)

// Never is the RetryAfter of a cost that can never fit its limit.
const Never = time.Duration(math.MaxInt64)

// Reason says why a Decision was made.
type Reason uint8

const (
	// OK means that the cost fits the limit.
	OK Reason = iota
	// Limited means that the request may pass at RetryAfter, not now.
	Limited
	// TooLarge means that the cost exceeds what can ever fit.
	TooLarge
	// FailOpen means that the store could not answer and the policy lets requests pass.
	FailOpen
	// FailClosed means that the store could not answer and the policy refuses, or that
	// the request was invalid.
	FailClosed
	// Fallback means that the store could not answer, and the fallback store did.
	Fallback
	// Cached is a refusal from the deny cache; the store was not asked.
	Cached
	// Shadow means that the limit would have refused, but runs in shadow mode.
	Shadow
	// NoLimit means that the limit is Unlimited.
	NoLimit
	// Banned means that an operator has banned the key until RetryAfter, or that a deny
	// list has the request and RetryAfter is Never. The limit was not consulted.
	Banned
	// Expired means that the lease to renew no longer exists.
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
// For example, a token bucket of 4 that refills 4 per minute is asked five times at
// once. The fourth answer is {Allowed: true, Limit: 4, Remaining: 0, Granted: 1,
// ResetAfter: 1m} and the fifth {Allowed: false, Reason: Limited, Limit: 4, Remaining:
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
	// ([Limit.InZone]) it is how long it takes until the whole limit is available.
	ResetAfter time.Duration
	// Delay is how long an allowed request must wait for its turn: in the queue of a
	// leaky bucket, or for what Reserve has booked.
	Delay time.Duration
	// Lease names what was taken of a limit of [Concurrent], for Release and Renew; 0
	// if nothing was taken. All leases of a key have different names.
	Lease int64
	// CountsUntil is when what was taken no longer counts against the limit, in
	// microseconds since the Unix epoch by the store's clock; 0 if nothing was taken. A
	// Refund finds the take by it; see [Op.CountsUntil].
	CountsUntil int64
}

// String returns d as a sentence for people, such as "refused: 0 of 5 left, retry after
// 12s". It has no names, keys or leases. The text may change; see Reason for programs.
func (d Decision) String() string {
	if !d.Allowed {
		return "refused: " + d.refusal()
	}
	text := "allowed"
	if d.Delay > 0 {
		text += " after " + shortDuration(d.Delay)
	}
	switch d.Reason {
	case NoLimit:
		return text + ": no limit"
	case FailOpen:
		return text + ": the store did not answer"
	case Shadow:
		return text + " in shadow mode, else " + Decision{Reason: Limited, Limit: d.Limit, Remaining: d.Remaining, RetryAfter: d.RetryAfter}.String()
	case OK, Limited, TooLarge, FailClosed, Fallback, Cached, Banned, Expired:
	}
	if text += ": " + d.left(); d.ResetAfter > 0 {
		text += ", all in " + shortDuration(d.ResetAfter)
	}
	return text
}

// refusal says why d refuses, and for how long.
func (d Decision) refusal() string {
	text := d.left()
	switch d.Reason {
	case OK:
		return "no decision"
	case FailClosed:
		return "the store did not answer, or the request is invalid"
	case Expired:
		return "the lease no longer exists"
	case Banned:
		if text = "banned"; d.RetryAfter == Never {
			return "on a deny list"
		}
	case Limited, TooLarge, FailOpen, Fallback, Cached, Shadow, NoLimit:
	}
	if d.RetryAfter == Never {
		return "the cost is more than the limit can ever allow"
	}
	return text + ", retry after " + retryText(d.RetryAfter)
}

func (d Decision) left() string {
	return strconv.FormatInt(d.Remaining, 10) + " of " + strconv.FormatInt(d.Limit, 10) + " left"
}

// Tighter reports whether d is stricter than other. A refusal is stricter than an
// admission. Of two refusals, the one with the longer RetryAfter is; of two admissions,
// the one with less Remaining and then with the later ResetAfter.
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
