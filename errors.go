package headgate

import (
	"errors"
	"time"
)

// errShortOut is the caller's mistake, not the store's.
var errShortOut = errors.New("headgate: out is shorter than ops")

// errWaitsForLease is returned by Wait for a limit of Concurrent.
var errWaitsForLease error = &detailError{kind: ErrInvalidLimit, detail: "Wait cannot be used with Concurrent, since nothing would release the slot: use Acquire"}

var errNilOption = errors.New("headgate.New was called with a nil option")

var (
	// ErrInvalidLimit is wrapped by every error about a limit that cannot be enforced:
	// unset, negative, too large or with incompatible options.
	ErrInvalidLimit = errors.New("invalid limit")
	// ErrInvalidCost is returned for a negative cost. To give back, use Refund.
	ErrInvalidCost = errors.New("invalid cost: it must not be negative")
	// ErrNoMember is returned for a limit of [Distinct] and an op that does not say which
	// value the request shows, or not by a number of [MemberOf].
	ErrNoMember = errors.New("a limit of distinct values needs the value that the request shows: use AllowMember, or set Op.Member to what MemberOf returns")
	// ErrNoStore is returned by every method of a Limiter without a Store. Such a
	// Limiter refuses everything.
	ErrNoStore = errors.New("headgate.New was called without a store")
	// ErrInvalidFallback is wrapped by the error of every method of a Limiter whose
	// [WithFallback] has no store or an invalid share. Such a Limiter refuses
	// everything.
	ErrInvalidFallback = errors.New("invalid fallback")
	// ErrInvalidDuration is returned for credit that would end immediately.
	ErrInvalidDuration = errors.New("invalid duration: credit must last longer than 0")
	// ErrInvalidTime is returned by every method of a Limiter if the clock set with
	// [WithClock] is out of range.
	ErrInvalidTime = errors.New("invalid time: the clock of WithClock must be after 1970-01-01T00:00:00Z and before 2112")
	// ErrUnavailable is wrapped by every error that means the store could not answer.
	// The Decision returned with it is the failure policy's.
	ErrUnavailable = errors.New("store unavailable")
	// ErrClosed is returned by a store that has been closed. It wraps ErrUnavailable.
	ErrClosed error = &detailError{kind: ErrUnavailable, detail: "closed"}
)

// LimitedError is a refusal as an error, for callers that do not get a Decision: of
// Wait, and of HTTP and gRPC clients. Find it with errors.As.
type LimitedError struct {
	Decision Decision
}

// Error says when the request may be retried, rounded up to a millisecond.
func (e *LimitedError) Error() string {
	if e.Decision.RetryAfter == Never {
		return "rate limited: the cost is more than the limit can ever allow"
	}
	return "rate limited: retry after " + retryText(e.Decision.RetryAfter)
}

// retryText formats a time to wait, rounded up to a millisecond: never too early.
func retryText(d time.Duration) string {
	if d > time.Millisecond {
		d = (d + time.Millisecond - 1).Truncate(time.Millisecond)
	}
	return shortDuration(d)
}

// detailError is like fmt.Errorf("%w: %s", kind, detail), without fmt.
type detailError struct {
	kind   error
	detail string
}

func (e *detailError) Error() string { return e.kind.Error() + ": " + e.detail }

func (e *detailError) Unwrap() error { return e.kind }
