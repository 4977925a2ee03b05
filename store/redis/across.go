package redis

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// All or nothing in several slots: each slot takes separately. If one refuses or fails,
// the takes of the others are undone; see pipeline.join.
//
// The server knows by its own clock how much a take added and how much of that has
// drained when it is undone, so nothing is returned twice. A failed call may have taken
// something; it is not undone.
//
// The caller waits for undoing until the deadline of the takes; after that, undoing
// continues without the caller for at most another Timeout.

// divisible returns why the ops cannot be split between slots.
func (b *batch) divisible() error {
	if b.store.options.StrictAtomic {
		return fmt.Errorf("redis: %d slots: %w", len(b.calls), store.ErrCrossSlot)
	}
	for i := range b.ops {
		switch b.ops[i].Kind {
		case headgate.Take, headgate.TakeUpTo, headgate.Peek, headgate.Charge, headgate.Reserve:
		case headgate.Refund, headgate.Grant, headgate.Reset, headgate.Release, headgate.Renew, headgate.Draw:
			return fmt.Errorf("redis: %s cannot be undone: %w", b.ops[i].Kind, store.ErrCrossSlot)
		}
	}
	return nil
}

// taken returns the calls to slots that took although the batch was refused or failed.
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

// unwanted is what a batch took and must return.
type unwanted struct {
	*batch

	taken []*call
	err   error
}

// giveBack undoes the takes of all of list in one round trip, and waits for it until
// deadline. It runs even if the callers have gone.
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

// untake changes the decisions of taken to those of Peek, as far as possible without
// asking the server.
func (b *batch) untake(taken []*call) {
	for _, t := range taken {
		for _, c := range t.checks {
			d := &b.out[c.index]
			d.Remaining, d.Granted, d.Delay, d.Lease, d.CountsUntil = d.Remaining+d.Granted, 0, 0, 0, 0
		}
	}
}

// undo returns the calls that undo those takes and then answer like Peek.
func (b *batch) undo(taken []*call) []*call {
	calls := make([]*call, 0, len(taken))
	for _, t := range taken {
		u := &call{slot: t.slot, of: b}
		for _, c := range t.checks {
			if granted := b.out[c.index].Granted; granted > 0 {
				op := b.ops[c.index]
				op.Cost, op.CountsUntil = granted, b.out[c.index].CountsUntil
				kind := headgate.Refund
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
