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
	op := Op{Key: r.key, Limit: r.limit}
	if store := r.limiter.settlement(&op, &r.Decision, n, r.limiter.Now().Sub(r.taken)); store != nil {
		var err error
		if op.At, err = r.limiter.stamp(); err != nil {
			return err
		}
		if _, err = store.Take(ctx, op); err != nil {
			return err
		}
	}
	r.settled, r.Decision.Granted = true, 0
	return nil
}

// settlement makes op, a take that was answered with d that long ago, what is left
// to do to have taken n, and returns the store to put it to; nil if nothing is left.
func (l *Limiter) settlement(op *Op, d *Decision, n int64, age time.Duration) Store {
	granted := d.Granted
	if d.Reason == FailOpen {
		granted = 0 // nothing was taken, so nothing can be given back
	}
	switch {
	case op.Limit.Algorithm() == Concurrency:
		op.Kind, op.Cost, op.Lease = Release, granted, d.Lease
	case n > granted:
		op.Kind, op.Cost = Charge, n-granted
	default:
		op.Kind, op.Cost, op.Age, op.Duration = Refund, granted-n, age, d.ResetAfter-age
		if op.Duration <= 0 {
			return nil // time has given it back
		}
	}
	if op.Cost == 0 {
		return nil
	}
	return l.origin(op, d)
}

// origin returns the store that answered op with d, and makes op one for it. What
// was taken there is given back, charged or renewed there and nowhere else, where
// another take would have it.
func (l *Limiter) origin(op *Op, d *Decision) Store {
	if d.Reason == Fallback && l.fallback != nil {
		op.Limit = op.Limit.Share(l.share)
		return l.fallback
	}
	return l.store
}

// GiveBack returns what ops took, which were answered with decisions that long ago,
// less what time has given back since: each to the store that it was taken from, this
// Limiter's or its fallback, and to no other, where another request has it. Leases are
// not given back; see [Lease.Release]. It is for code that is built on a Limiter, such
// as middleware whose request turns out not to count.
func (l *Limiter) GiveBack(ctx context.Context, ops []Op, decisions []Decision, since time.Duration) error {
	now, err := l.stamp()
	if err != nil {
		return err
	}
	var own, local []Op
	for i, op := range ops {
		d := &decisions[i]
		if d.Lease != 0 || d.Reason == Fallback && l.fallback == nil {
			continue
		}
		op.At = now
		switch store := l.settlement(&op, d, 0, since); {
		case store == nil:
		case d.Reason == Fallback:
			local = append(local, op)
		default:
			own = append(own, op)
		}
	}
	return errors.Join(giveBack(ctx, l.store, own), giveBack(ctx, l.fallback, local))
}

func giveBack(ctx context.Context, store Store, refunds []Op) error {
	if len(refunds) == 0 {
		return nil
	}
	return store.Do(ctx, refunds, make([]Decision, len(refunds)), Independent)
}

// Reserve takes n now or, from a bucket, books it for at most maxWait from now.
// The caller waits Delay and goes ahead, or cancels. A refusal is no error: the
// Reservation is then not OK and says when to try again.
func (l *Limiter) Reserve(ctx context.Context, key string, limit Limit, n int64, maxWait time.Duration) (Reservation, error) {
	op := Op{Key: key, Limit: limit, Cost: n, Kind: Reserve, Duration: maxWait}
	taken := l.Now()
	d, err := l.Do(ctx, op)
	if limit.Algorithm() > LeakyBucket {
		// What a bucket has drained since must not be given back again, so its
		// age is rather too long. A window takes back all or nothing, by the
		// window of the take: there the age is rather too short.
		taken = l.Now()
	}
	return Reservation{limiter: l, key: key, limit: limit, taken: taken, Decision: d}, err
}

// Wait blocks until n has been taken from the limit. It returns nil, or the
// context's error, or at once a [LimitedError] if n can never fit or not
// before the context's deadline. Buckets serve their waiters in order. With
// [WithClock] it waits by that clock, as [Limiter.Sleep] does; only the context's
// deadline is on the real clock. A limit of
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
			if err := l.Sleep(ctx, r.Delay()); err != nil {
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
		if err := l.Sleep(ctx, retry); err != nil {
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

// Now returns the time by the Limiter's clock: that of [WithClock], or time.Now.
func (l *Limiter) Now() time.Time {
	if l.clock != nil {
		return l.clock()
	}
	return time.Now() //nolint:forbidigo // the edge: a library caller gave no clock
}

// Sleep waits for d, or until ctx is done, whose error it returns. With a
// [WithClock] it waits until that clock has gone on by d, however it does. It is for
// code that is built on a Limiter and keeps a Decision.Delay.
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
