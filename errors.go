package headgate

import "errors"

// errShortOut is a mistake of the caller's, not of the store's.
var errShortOut = errors.New("headgate: fewer decisions than ops in the out slice")

// errWaitsForLease is Wait's answer to a limit of Concurrent.
var errWaitsForLease error = &detailError{kind: ErrInvalidLimit, detail: "what Wait takes of a limit of Concurrent nobody could release: use Acquire"}

// errNilOption is the flaw of a Limiter.
var errNilOption = errors.New("headgate.New was given a nil option")

var (
	// ErrInvalidLimit is wrapped by every error about a limit that cannot be
	// enforced: unset, negative, too large or with options that do not fit.
	ErrInvalidLimit = errors.New("invalid limit")
	// ErrInvalidCost is returned for a negative cost. To give back, Refund.
	ErrInvalidCost = errors.New("invalid cost: it must not be negative")
	// ErrNoStore is returned by every call of a Limiter that was made without a
	// Store, and by what is built on it. Such a Limiter refuses everything.
	ErrNoStore = errors.New("headgate.New was given no store")
	// ErrInvalidFallback is wrapped by the error of every call of a Limiter whose
	// [WithFallback] has no store or a share that is none. It refuses everything.
	ErrInvalidFallback = errors.New("invalid fallback")
	// ErrInvalidDuration is returned for credit that would be over when it is
	// granted.
	ErrInvalidDuration = errors.New("invalid duration: credit has to last for more than 0")
	// ErrInvalidTime is returned by every call of a Limiter whose [WithClock] says a
	// time that no algorithm counts by.
	ErrInvalidTime = errors.New("invalid time: the clock of WithClock must be after 1970 began, and before 2112")
	// ErrUnavailable is wrapped by every error that means the store could not
	// answer. The Decision beside it is the failure policy's.
	ErrUnavailable = errors.New("store unavailable")
	// ErrClosed is returned by a store that has been closed. It is also an
	// ErrUnavailable.
	ErrClosed error = &detailError{kind: ErrUnavailable, detail: "closed"}
)

// LimitedError is a refusal as an error, for callers that have no Decision to
// look at: Wait, HTTP and gRPC clients. Use errors.As.
type LimitedError struct {
	Decision Decision
}

// Error says when the request may be tried again.
func (e *LimitedError) Error() string {
	if e.Decision.RetryAfter == Never {
		return "rate limited: the cost can never fit into the limit"
	}
	return "rate limited: retry after " + e.Decision.RetryAfter.String()
}

// detailError is what fmt.Errorf("%w: %s", kind, detail) would be.
type detailError struct {
	kind   error
	detail string
}

func (e *detailError) Error() string { return e.kind.Error() + ": " + e.detail }

func (e *detailError) Unwrap() error { return e.kind }
