package headgate

import (
	"context"
	"errors"
	"math"
	"time"
)

// Reservation is a take that may be given back, or settled at another cost. Its
// zero value was refused. A copy would be given back, or settled, once more: pass
// a pointer on.
type Reservation struct {
	limiter *Limiter
	key     string
	limit   Limit
	taken   time.Time
	settled bool
	// Decision is the store's answer. If it is allowed, the request may go
	// ahead after Decision.Delay.
	Decision Decision
}

// OK reports whether the reservation was made.
func (r *Reservation) OK() bool { return r.Decision.Allowed }

// Delay returns how long to wait, counted from when it was made, before going
// ahead.
func (r *Reservation) Delay() time.Duration { return r.Decision.Delay }

// Cancel gives back what was taken, less what time has given back already. A
// second Cancel, or one of a refused or committed reservation, does nothing; one
// that failed can be tried again, as Commit can.
func (r *Reservation) Cancel(ctx context.Context) error { return r.settle(ctx, 0) }

// Commit settles the reservation at n, what the request has really cost, if that
// was known only afterwards: the difference is charged, into debt if need be, or
// given back, less what time has given back already. A second Commit, or one of
// a refused or cancelled reservation, does nothing. n must not be negative.
//
// With an error it is not settled, and either can be called again. But a store that
// did not answer in time may have counted it all the same, and counts it again.
//
// Of a limit of [Concurrent] it gives the places back.
func (r *Reservation) Commit(ctx context.Context, n int64) error {
	if n < 0 {
		return ErrInvalidCost
	}
	return r.settle(ctx, n)
}

// settle settles r at n, once.
func (r *Reservation) settle(ctx context.Context, n int64) error {
	if !r.Decision.Allowed || r.limiter == nil || r.settled {
		return nil
	}
	if op := r.settlement(n); op.Cost != 0 {
		if err := r.ask(ctx, op); err != nil {
			return err
		}
	}
	r.settled, r.Decision.Granted = true, 0
	return nil
}

// settlement returns what is left to do to have taken n; of cost 0 if nothing is.
func (r *Reservation) settlement(n int64) Op {
	granted := r.Decision.Granted
	if r.Decision.Reason == FailOpen {
		granted = 0 // nothing was taken, so nothing can be given back
	}
	op := Op{Key: r.key, Limit: r.limit}
	switch {
	case r.limit.Algorithm() == Concurrency:
		op.Kind, op.Cost, op.Lease = Release, granted, r.Decision.Lease
	case n > granted:
		op.Kind, op.Cost = Charge, n-granted
	case n < granted:
		op.Kind, op.Cost = Refund, granted-n
		op.Age = r.limiter.now().Sub(r.taken)
		if op.Duration = r.Decision.ResetAfter - op.Age; op.Duration <= 0 {
			op.Cost = 0
		}
	}
	return op
}

// ask puts op to the store that the reservation was taken from, and to no other:
// there it would give back, or charge, what another take has.
func (r *Reservation) ask(ctx context.Context, op Op) error {
	store := r.limiter.store
	if r.Decision.Reason == Fallback {
		store, op.Limit = r.limiter.fallback, op.Limit.Share(r.limiter.share)
	}
	var err error
	if op.At, err = r.limiter.stamp(); err != nil {
		return err
	}
	_, err = store.Take(ctx, op)
	return err
}

// Reserve takes n now or, from a bucket, books it for at most maxWait from now.
// The caller waits Delay and goes ahead, or cancels. A refusal is no error: the
// Reservation is then not OK and says when to try again.
func (l *Limiter) Reserve(ctx context.Context, key string, limit Limit, n int64, maxWait time.Duration) (Reservation, error) {
	op := Op{Key: key, Limit: limit, Cost: n, Kind: Reserve, Duration: maxWait}
	taken := l.now()
	d, err := l.Do(ctx, op)
	if limit.Algorithm() > LeakyBucket {
		// What a bucket has drained since must not be given back again, so its
		// age is rather too long. A window takes back all or nothing, by the
		// window of the take: there the age is rather too short.
		taken = l.now()
	}
	return Reservation{limiter: l, key: key, limit: limit, taken: taken, Decision: d}, err
}

// Wait blocks until n has been taken from the limit. It returns nil, or the
// context's error, or at once a [LimitedError] if n can never fit or not
// before the context's deadline. Buckets serve their waiters in order. With
// [WithClock] it waits by that clock, but for the deadline, which is real. A limit of
// [Concurrent] is an error: nobody could give back what was taken of it; see
// [Limiter.Acquire].
func (l *Limiter) Wait(ctx context.Context, key string, limit Limit, n int64) error {
	if limit.Valid() && limit.Algorithm() == Concurrency {
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
		if err != nil && !r.OK() && r.Decision.Reason != Fallback {
			return err
		}
		if r.OK() {
			if err := l.sleep(ctx, r.Delay()); err != nil {
				// The caller's context is done, but the place has to be freed.
				_ = r.Cancel(context.WithoutCancel(ctx))
				return err
			}
			return nil
		}
		retry := r.Decision.RetryAfter
		if retry > maxWait || retry == Never || hasDeadline && r.tooLate(maxWait) {
			return &LimitedError{Decision: r.Decision}
		}
		if err := l.sleep(ctx, retry); err != nil {
			return err
		}
	}
}

// tooLate reports whether a refused booking would be refused until the deadline
// in maxWait: its RetryAfter supposes that one may then wait as long again. A
// token bucket books whatever will be there by the deadline. A leaky bucket can
// also have refused because its queue is full, and may have a place in time if
// all before it will have drained.
func (r *Reservation) tooLate(maxWait time.Duration) bool {
	switch r.limit.Algorithm() {
	case TokenBucket:
		return true
	case LeakyBucket:
		return r.Decision.ResetAfter > maxWait
	case FixedWindow, SlidingLog, SlidingWindow, SlidingBuckets, Concurrency:
	}
	return false
}

// now reads the Limiter's clock.
func (l *Limiter) now() time.Time {
	if l.clock != nil {
		return l.clock()
	}
	return time.Now() //nolint:forbidigo // the edge: a library caller gave no clock
}

// sleep waits for d, or until ctx is done, whose error it returns. With a clock
// of its own the Limiter waits until that has gone on by d.
func (l *Limiter) sleep(ctx context.Context, d time.Duration) error {
	const often = 10 * time.Millisecond
	if d <= 0 {
		return nil
	}
	if l.clock == nil {
		return pause(ctx, d)
	}
	for until := l.clock().Add(d); ; {
		left := until.Sub(l.clock())
		if left <= 0 {
			return nil
		}
		if err := pause(ctx, min(left, often)); err != nil {
			return err
		}
	}
}

// pause waits for d of real time.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d) //nolint:forbidigo // waiting is what Wait is for
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func isUnavailable(err error) bool { return errors.Is(err, ErrUnavailable) }
