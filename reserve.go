package headgate

import (
	"context"
	"math"
	"time"

	"github.com/headgate/headgate/store"
)

// Reservation is a take that can be cancelled, or settled at another cost. The zero
// Reservation was refused.
type Reservation struct {
	// Decision is the store's answer. If it is allowed, the request may proceed after
	// Decision.Delay, counted from when the reservation was made.
	Decision Decision

	limiter *Limiter
	key     string
	limit   Limit
	taken   time.Time
	settled bool
}

// Cancel refunds what was taken, less what has refilled since and what later bookings
// rely on. Cancelling a second time, or cancelling a refused or committed reservation,
// does nothing. After an error, Cancel may be called again.
func (r *Reservation) Cancel(ctx context.Context) error { return r.settle(ctx, 0) }

// Commit settles the reservation at cost, the real cost of the request. The difference is
// charged, into debt if it does not fit, or refunded, less what has refilled since.
// Committing a second time, or committing a refused or cancelled reservation, does
// nothing. cost must not be negative.
//
// After an error the reservation is not settled, and Commit or Cancel may be called
// again. A store that did not answer in time may have counted it, and then counts it
// twice.
//
// For a limit of [Concurrent], Commit releases the slots.
func (r *Reservation) Commit(ctx context.Context, cost int64) error {
	if cost < 0 {
		return ErrInvalidCost
	}
	return r.settle(ctx, cost)
}

// settle settles r at n, once.
func (r *Reservation) settle(ctx context.Context, n int64) error {
	if !r.Decision.Allowed || r.limiter == nil || r.settled {
		return nil
	}
	c := &r.limiter.caller
	op := store.Op{Key: r.key, Rule: r.limit.Rule()}
	if err := c.Settle(ctx, op, (*store.Decision)(&r.Decision), n, c.Now().Sub(r.taken)); err != nil {
		return err
	}
	r.settled, r.Decision.Granted = true, 0
	return nil
}

// Reserve takes cost now or, from a bucket, books it for at most maxWait from now. The
// caller waits for Decision.Delay and proceeds, or cancels. A refusal is not an error: the
// Decision says when to retry. The returned Reservation is never nil.
func (l *Limiter) Reserve(ctx context.Context, key string, limit Limit, cost int64, maxWait time.Duration) (*Reservation, error) {
	op := store.Op{Key: key, Rule: limit.Rule(), Cost: cost, Kind: store.KindReserve, Duration: maxWait}
	taken := l.caller.Now()
	d, err := l.caller.Do(ctx, op)
	if limit.Algorithm() > LeakyBucket {
		// What a bucket has drained must not be refunded, so its age must not be too
		// short. A window refunds all or nothing, by the window of the take, so there
		// the age must not be too long.
		taken = l.caller.Now()
	}
	return &Reservation{Decision: Decision(d), limiter: l, key: key, limit: limit, taken: taken}, err
}

// Wait blocks until 1 has been taken from the limit. It is shorthand for WaitN(ctx, key,
// limit, 1).
func (l *Limiter) Wait(ctx context.Context, key string, limit Limit) error {
	return l.WaitN(ctx, key, limit, 1)
}

// WaitN blocks until n has been taken from the limit, and returns nil. It returns the
// context's error when the context is done, and a [LimitedError] at once if n can never
// fit, or not before the context's deadline. Buckets serve waiters in order. With
// [WithClock] it waits by that clock, except that the context's
// deadline is in real time. A limit of [Concurrent] is an error, since nothing would
// release the slot; use [Limiter.Acquire].
func (l *Limiter) WaitN(ctx context.Context, key string, limit Limit, n int64) error {
	if limit.Rule().Valid() && limit.Algorithm() == Concurrency {
		return errWaitsForLease
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		maxWait := time.Duration(math.MaxInt64)
		deadline, hasDeadline := ctx.Deadline()
		if hasDeadline {
			maxWait = time.Until(deadline) //nolint:forbidigo // a context's deadline is on the real clock
		}
		r, err := l.Reserve(ctx, key, limit, n, max(maxWait, 0))
		if err != nil && !r.Decision.Allowed && r.Decision.Reason != ReasonFallback {
			return err
		}
		if r.Decision.Allowed {
			if err := l.caller.Sleep(ctx, r.Decision.Delay); err != nil {
				// The caller's context is done, but what was booked must be freed.
				_ = r.Cancel(context.WithoutCancel(ctx))
				return err
			}
			return nil
		}
		retry := r.Decision.RetryAfter
		if retry > maxWait || retry == Never || hasDeadline && r.tooLate(maxWait) {
			d := r.Decision
			if hasDeadline && retry != Never && limit.Algorithm() == TokenBucket {
				d.RetryAfter += max(maxWait, 0) // that of Reserve is for another try with the same wait
			}
			return &LimitedError{Decision: d}
		}
		if err := l.caller.Sleep(ctx, retry); err != nil {
			return err
		}
	}
}

// tooLate reports whether a refused booking will be refused until the deadline in
// maxWait. RetryAfter assumes that the same wait is possible again later. A token
// bucket books whatever is available by the deadline. A leaky bucket may also have
// refused because its queue is full, and may have space in time once it has drained.
func (r *Reservation) tooLate(maxWait time.Duration) bool {
	switch r.limit.Algorithm() {
	case TokenBucket:
		return true
	case LeakyBucket:
		return r.Decision.ResetAfter > maxWait
	case FixedWindow, SlidingLog, SlidingWindow, SlidingBuckets, Concurrency, Distinct:
	}
	return false
}
