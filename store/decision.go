package store

import (
	"math"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/base/plain"
)

// Never is the RetryAfter of a cost that can never fit its limit.
const Never = time.Duration(math.MaxInt64)

// Reason says why a Decision was made.
type Reason uint8

const (
	// ReasonOK means that the cost fits the limit.
	ReasonOK Reason = iota
	// ReasonLimited means that the request may pass at RetryAfter, not now.
	ReasonLimited
	// ReasonTooLarge means that the cost exceeds what can ever fit.
	ReasonTooLarge
	// ReasonFailOpen means that the store could not answer and the policy lets requests pass.
	ReasonFailOpen
	// ReasonFailClosed means that the store could not answer and the policy refuses, or that
	// the request was invalid.
	ReasonFailClosed
	// ReasonFallback means that the store could not answer, and the fallback store did.
	ReasonFallback
	// ReasonCached is a refusal from the deny cache; the store was not asked.
	ReasonCached
	// ReasonShadow means that the limit would have refused, but runs in shadow mode.
	ReasonShadow
	// ReasonNoLimit means that the limit is Unlimited.
	ReasonNoLimit
	// ReasonBanned means that an operator has banned the key until RetryAfter, or that a deny
	// list has the request and RetryAfter is Never. The limit was not consulted.
	ReasonBanned
	// ReasonExpired means that the lease to renew no longer exists.
	ReasonExpired
	// ReasonHeadroom means that the request may pass at RetryAfter, and would pass now if it
	// did not have to leave a part of the limit to requests of a higher class.
	ReasonHeadroom
	// ReasonShare means that the request may pass at RetryAfter: its owner has used more of
	// the bucket than others for its weight, and there is not enough for all.
	ReasonShare
)

// String returns the name used in JSON, such as limited.
func (r Reason) String() string {
	if r <= ReasonShare {
		return [...]string{
			ReasonOK: "ok", ReasonLimited: "limited", ReasonTooLarge: "too_large", ReasonFailOpen: "fail_open", ReasonFailClosed: "fail_closed",
			ReasonFallback: "fallback", ReasonCached: "cached", ReasonShadow: "shadow", ReasonNoLimit: "unlimited", ReasonBanned: "banned",
			ReasonExpired: "expired", ReasonHeadroom: "headroom", ReasonShare: "share",
		}[r]
	}
	return plain.Numbered("reason", uint8(r))
}

// Decision is the answer of one limit to one request. It has the fields of
// headgate.Decision, which explains them for users, and converts to it without cost.
type Decision struct {
	Allowed    bool          // reports whether the request may pass
	Reason     Reason        // says why
	Limit      int64         // the maximum of Remaining
	Remaining  int64         // how much more would pass at once, including credit
	Granted    int64         // how much was taken
	RetryAfter time.Duration // until the same request would pass; 0 if it is allowed
	ResetAfter time.Duration // until the state equals that of an unused key
	Delay      time.Duration // until the turn of an allowed request
	Lease      int64         // names what was taken of a concurrency limit
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
		text += " after " + plain.Duration(d.Delay)
	}
	switch d.Reason {
	case ReasonNoLimit:
		return text + ": no limit"
	case ReasonFailOpen:
		return text + ": the store did not answer"
	case ReasonShadow:
		return text + " in shadow mode, else " + Decision{Reason: ReasonLimited, Limit: d.Limit, Remaining: d.Remaining, RetryAfter: d.RetryAfter}.String()
	case ReasonOK, ReasonLimited, ReasonTooLarge, ReasonFailClosed, ReasonFallback, ReasonCached, ReasonBanned, ReasonExpired, ReasonHeadroom, ReasonShare:
	}
	if text += ": " + d.left(); d.ResetAfter > 0 {
		text += ", all in " + plain.Duration(d.ResetAfter)
	}
	return text
}

// refusal says why d refuses, and for how long.
func (d Decision) refusal() string {
	text := d.left()
	switch d.Reason {
	case ReasonOK:
		return "no decision"
	case ReasonFailClosed:
		return "the store did not answer, or the request is invalid"
	case ReasonExpired:
		return "the lease no longer exists"
	case ReasonShare:
		return "over the fair share, retry after " + plain.Wait(d.RetryAfter)
	case ReasonHeadroom:
		return "what is left is kept for requests of a higher class, retry after " + plain.Wait(d.RetryAfter)
	case ReasonBanned:
		if text = "banned"; d.RetryAfter == Never {
			return "on a deny list"
		}
	case ReasonLimited, ReasonTooLarge, ReasonFailOpen, ReasonFallback, ReasonCached, ReasonShadow, ReasonNoLimit:
	}
	if d.RetryAfter == Never {
		return "the cost is more than the limit can ever allow"
	}
	return text + ", retry after " + plain.Wait(d.RetryAfter)
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

// Tightest returns the index of the tightest decision, the first of equals, and -1 if
// there is none; see [Decision.Tighter].
func Tightest(decisions []Decision) int {
	best := -1
	for i := range decisions {
		if best < 0 || decisions[i].Tighter(decisions[best]) {
			best = i
		}
	}
	return best
}
