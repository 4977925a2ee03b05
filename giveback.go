package headgate

import (
	"context"
	"errors"
	"time"
)

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
		left := d.ResetAfter - since
		if d.Granted == 0 || left <= 0 || d.Lease != 0 || d.Reason == FailOpen {
			continue // nothing was taken, or time has given it back
		}
		op.Kind, op.Cost, op.Duration, op.Age, op.At = Refund, d.Granted, left, since, now
		if d.Reason != Fallback {
			own = append(own, op)
		} else if l.fallback != nil {
			op.Limit = op.Limit.Share(l.share)
			local = append(local, op)
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
