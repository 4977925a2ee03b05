package headgate

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/headgate/headgate/store"
)

// Reservation is a take that can be cancelled, or settled at another cost. The zero
// Reservation was refused. Pass a pointer to it: a copy would be settled separately.
type Reservation struct {
	limiter *Limiter
	key     string
	limit   Limit
	taken   time.Time
	settled bool
	// Decision is the store's answer. If it is allowed, the request may proceed after
	// Decision.Delay.
	Decision Decision
}

// OK reports whether the reservation was made.
func (r *Reservation) OK() bool { return r.Decision.Allowed }

// Delay returns how long to wait before proceeding, counted from when the reservation
// was made.
func (r *Reservation) Delay() time.Duration { return r.Decision.Delay }

// Cancel refunds what was taken, less what has refilled since and what later bookings
// rely on. Cancelling a second time, or cancelling a refused or committed reservation,
// does nothing. After an error, Cancel may be called again.
func (r *Reservation) Cancel(ctx context.Context) error { return r.settle(ctx, 0) }

// Commit settles the reservation at n, the real cost of the request. The difference is
// charged, into debt if it does not fit, or refunded, less what has refilled since.
// Committing a second time, or committing a refused or cancelled reservation, does
// nothing. n must not be negative.
//
// After an error the reservation is not settled, and Commit or Cancel may be called
// again. A store that did not answer in time may have counted it, and then counts it
// twice.
//
// For a limit of [Concurrent], Commit releases the slots.
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
	op := store.Op{Key: r.key, Rule: r.limit.Rule()}
	if to := r.limiter.settlement(&op, (*store.Decision)(&r.Decision), n, r.limiter.Now().Sub(r.taken)); to != nil {
		var err error
		if op.At, err = r.limiter.stamp(); err != nil {
			return err
		}
		if _, err = store.Execute(ctx, to, op); err != nil {
			return err
		}
	}
	r.settled, r.Decision.Granted = true, 0
	return nil
}

// settlement turns op, a take that was answered with d age ago, into what is left to do
// so that n is taken, and returns the store to send it to, or nil if nothing is left.
func (l *Limiter) settlement(op *store.Op, d *store.Decision, n int64, age time.Duration) store.Store {
	granted := d.Granted
	if d.Reason == ReasonFailOpen {
		granted = 0 // nothing was taken, so nothing can be given back
	}
	switch {
	case op.Rule.Algorithm == Concurrency:
		op.Kind, op.Cost, op.Lease = store.KindRelease, granted, d.Lease
	case n > granted:
		op.Kind, op.Cost = store.KindCharge, n-granted
	default:
		op.Kind, op.Cost, op.Duration, op.CountsUntil = store.KindRefund, granted-n, d.ResetAfter-age, d.CountsUntil
		if op.Duration <= 0 {
			return nil // time has given it back
		}
	}
	if op.Cost == 0 {
		return nil
	}
	return l.origin(op, d)
}

// origin returns the store that answered op with d, and adapts op to it. What was taken
// there is refunded, charged or renewed there only: in another store it would belong to
// another take.
func (l *Limiter) origin(op *store.Op, d *store.Decision) store.Store {
	if d.Reason == ReasonFallback && l.fallback != nil {
		op.Rule = op.Rule.Share(l.share)
		return l.fallback
	}
	return l.store
}

// GiveBack refunds what ops took, less what has refilled since. decisions are the
// answers to ops, and since is how long ago they were taken. Each refund goes to the
// store that answered, the Limiter's own or its fallback. Leases are not released; see
// [Lease.Release]. It is for code that builds on a Limiter, such as middleware whose
// request turns out not to count. Decisions whose take was refunded then have Granted 0,
// and the Remaining and ResetAfter after the refund.
func (l *Limiter) GiveBack(ctx context.Context, ops []store.Op, decisions []store.Decision, since time.Duration) error {
	now, err := l.stamp()
	if err != nil {
		return err
	}
	var own, local refunds
	for i, op := range ops {
		d := &decisions[i]
		if d.Lease != 0 || d.Reason == ReasonFallback && l.fallback == nil {
			continue
		}
		op.At = now
		switch to := l.settlement(&op, d, 0, since); {
		case to == nil:
		case d.Reason == ReasonFallback:
			local.add(op, d)
		default:
			own.add(op, d)
		}
	}
	return errors.Join(own.do(ctx, l.store), local.do(ctx, l.fallback))
}

// refunds are ops that refund takes, and what those were answered with.
type refunds struct {
	ops  []store.Op
	took []*store.Decision
}

func (r *refunds) add(op store.Op, took *store.Decision) {
	r.ops, r.took = append(r.ops, op), append(r.took, took)
}

// do sends r to a store and notes what is left.
func (r *refunds) do(ctx context.Context, to store.Store) error {
	if len(r.ops) == 0 {
		return nil
	}
	out := make([]store.Decision, len(r.ops))
	if err := store.ExecuteAll(ctx, to, r.ops, out, store.Independent); err != nil {
		return err
	}
	for i, d := range r.took {
		d.Granted, d.Remaining, d.ResetAfter = 0, max(out[i].Remaining, 0), out[i].ResetAfter
	}
	return nil
}

// Reserve takes n now or, from a bucket, books it for at most maxWait from now. The
// caller waits for Delay and proceeds, or cancels. A refusal is not an error: the
// Reservation is then not OK, and its Decision says when to retry.
func (l *Limiter) Reserve(ctx context.Context, key string, limit Limit, n int64, maxWait time.Duration) (Reservation, error) {
	op := store.Op{Key: key, Rule: limit.Rule(), Cost: n, Kind: store.KindReserve, Duration: maxWait}
	taken := l.Now()
	d, err := l.Do(ctx, op)
	if limit.Algorithm() > LeakyBucket {
		// What a bucket has drained must not be refunded, so its age must not be too
		// short. A window refunds all or nothing, by the window of the take, so there
		// the age must not be too long.
		taken = l.Now()
	}
	return Reservation{limiter: l, key: key, limit: limit, taken: taken, Decision: Decision(d)}, err
}

// Wait blocks until n has been taken from the limit, and returns nil. It returns the
// context's error when the context is done, and a [LimitedError] at once if n can never
// fit, or not before the context's deadline. Buckets serve waiters in order. With
// [WithClock] it waits by that clock (see [Limiter.Sleep]), except that the context's
// deadline is in real time. A limit of [Concurrent] is an error, since nothing would
// release the slot; use [Limiter.Acquire].
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
		if err != nil && !r.OK() && r.Decision.Reason != ReasonFallback {
			return err
		}
		if r.OK() {
			if err := l.Sleep(ctx, r.Delay()); err != nil {
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
		if err := l.Sleep(ctx, retry); err != nil {
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

// Now returns the time of the Limiter's clock: that of [WithClock], or time.Now.
func (l *Limiter) Now() time.Time {
	if l.clock != nil {
		return l.clock()
	}
	return time.Now() //nolint:forbidigo // the edge: a library caller gave no clock
}

// Sleep waits for d, or until ctx is done, and then returns its error. With [WithClock]
// it waits until that clock has advanced by d. It is for code that builds on a Limiter
// and honors Decision.Delay.
func (l *Limiter) Sleep(ctx context.Context, d time.Duration) error {
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
