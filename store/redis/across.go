package redis

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// All or nothing in several slots: each takes separately, and if one refuses or
// fails, those that took give back; see pipeline.join.
//
// What a take has added, and what of that has drained by the time it is given
// back, the server knows by its own clock: nothing is returned twice. A call
// that failed may have taken all the same; it is not given back.
//
// The caller waits for what is given back until the deadline that the takes had;
// after that it continues without the caller, for at most another Timeout.

// divisible returns why the ops cannot be taken in several slots.
func (b *batch) divisible() error {
	if b.store.options.StrictAtomic {
		return fmt.Errorf("redis: %d slots: %w", len(b.calls), store.ErrCrossSlot)
	}
	for i := range b.ops {
		switch b.ops[i].Kind {
		case headgate.Take, headgate.TakeUpTo, headgate.Peek, headgate.Charge, headgate.Reserve:
		case headgate.Refund, headgate.Grant, headgate.Reset, headgate.Release, headgate.Renew:
			return fmt.Errorf("redis: %s cannot be undone: %w", b.ops[i].Kind, store.ErrCrossSlot)
		}
	}
	return nil
}

// taken returns the calls to other slots that took although the whole is
// refused, or has failed.
func (b *batch) taken() (taken []*call, refused bool) {
	for _, c := range b.calls {
		switch {
		case c.err != nil:
			refused = true
		case c.allowed:
			taken = append(taken, c)
		default:
			refused = true
		}
	}
	if !refused {
		return nil, false
	}
	return taken, true
}

// unwanted is what a batch has taken and has to give back.
type unwanted struct {
	*batch

	taken []*call
	err   error
}

// giveBack gives back what all of list have taken, in one round trip, and waits
// for it until deadline. Who has taken gives back even if its own caller has gone
// by now.
func (s *Store) giveBack(ctx context.Context, list []*unwanted, deadline time.Time) {
	owns, calls := make([]*batch, len(list)), []*call(nil)
	for i, u := range list {
		own := &batch{store: s, ops: cloneOps(u.ops), out: slices.Clone(u.out[:len(u.ops)])}
		own.calls = own.undo(u.taken)
		owns[i], calls = own, append(calls, own.calls...)
	}
	done := make(chan struct{})
	go func() {
		s.sendAll(context.WithoutCancel(ctx), calls)
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Until(deadline)): //nolint:forbidigo // deadlines are on the real clock
		for _, u := range list {
			u.untake(u.taken)
		}
		return
	}
	for i, u := range list {
		u.err = firstError(owns[i].calls)
		for _, t := range u.taken {
			for _, c := range t.checks {
				u.out[c.index] = owns[i].out[c.index]
			}
		}
	}
}

// untake makes the decisions of taken those of Peek, as far as one can say
// without asking.
func (b *batch) untake(taken []*call) {
	for _, t := range taken {
		for _, c := range t.checks {
			d := &b.out[c.index]
			d.Remaining, d.Granted, d.Delay, d.Lease = d.Remaining+d.Granted, 0, 0, 0
		}
	}
}

// undo returns the calls that give back what those took and then say what Peek
// says.
func (b *batch) undo(taken []*call) []*call {
	calls := make([]*call, 0, len(taken))
	for _, t := range taken {
		u := &call{slot: t.slot, of: b}
		for i, c := range t.checks {
			if granted := b.out[c.index].Granted; granted > 0 {
				op := b.ops[c.index]
				op.Cost, op.Duration = granted, time.Duration(t.freshAt[i])
				kind := undo
				if op.Limit.Algorithm() == headgate.Concurrency {
					kind, op.Lease = headgate.Release, b.out[c.index].Lease
				}
				u.checks = append(u.checks, check{index: -1, kind: kind, op: &op})
			}
		}
		for _, c := range t.checks {
			u.checks = append(u.checks, check{index: c.index, kind: headgate.Peek})
		}
		calls = append(calls, u)
	}
	return calls
}
