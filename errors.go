package headgate

import (
	"errors"

	"github.com/headgate/headgate/internal/base/plain"
	"github.com/headgate/headgate/store"
)

// errWaitsForLease is returned by Wait for a limit of Concurrent.
var errWaitsForLease = plain.Error(ErrInvalidLimit, "Wait cannot be used with Concurrent, since nothing would release the slot: use Acquire")

var errNilOption = errors.New("headgate.New was called with a nil option")

var (
	// ErrInvalidLimit is wrapped by every error about a limit that cannot be enforced:
	// unset, negative, too large or with incompatible options.
	ErrInvalidLimit = store.ErrInvalidLimit
	// ErrInvalidCost is returned for a negative cost. To give back, use Refund.
	ErrInvalidCost = store.ErrInvalidCost
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
	ErrUnavailable = store.ErrUnavailable
	// ErrClosed is returned by a store that has been closed. It wraps ErrUnavailable.
	ErrClosed = store.ErrClosed
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
	return "rate limited: retry after " + plain.Wait(e.Decision.RetryAfter)
}
