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
	// ErrUnavailable is wrapped by every error that means the store could not answer.
	// The Decision returned with it is the failure policy's.
	ErrUnavailable = store.ErrUnavailable
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
