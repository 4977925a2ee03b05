package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

// across executes all or nothing in several slots: each takes by itself, and if
// one refuses or fails, those that took give back.
//
// What a take has added, and what of that has drained by the time it is given
// back, the server knows by its own clock: nothing is returned twice. A call
// that failed may have taken all the same; it is not given back.
//
// The caller waits for what is given back until the deadline that the takes had;
// after that it goes on without him, for at most a Timeout of its own.
func (b *batch) across(ctx context.Context) error {
	if b.store.options.StrictAtomic {
		return fmt.Errorf("redis: %d slots: %w", len(b.calls), headgate.ErrCrossSlot)
	}
	for i := range b.ops {
		switch b.ops[i].Kind {
		case headgate.Take, headgate.TakeUpTo, headgate.Peek, headgate.Charge, headgate.Reserve:
		case headgate.Refund, headgate.Grant, headgate.Reset, headgate.Release, headgate.Renew:
			return fmt.Errorf("redis: %s cannot be undone: %w", b.ops[i].Kind, headgate.ErrCrossSlot)
		}
	}
	began := time.Now() //nolint:forbidigo // deadlines are on the real clock
	failed := b.run(ctx, b.calls)
	var taken []*call
	refused := failed != nil
	for _, c := range b.calls {
		switch {
		case c.done && c.allowed && c.err == nil:
			taken = append(taken, c)
		case c.done:
			refused = true
		}
	}
	if !refused {
		return nil
	}
	b.peekUnlimited()
	if len(taken) == 0 {
		return failed
	}
	err := b.giveBack(ctx, taken, earlier(ctx, began.Add(b.store.options.Timeout)))
	if failed == nil {
		return err
	}
	return errors.Join(failed, err)
}

// giveBack gives back what taken took, and waits for it until deadline. Who has
// taken gives back even if its own caller has gone by now.
func (b *batch) giveBack(ctx context.Context, taken []*call, deadline time.Time) error {
	own := &batch{store: b.store, ops: cloneOps(b.ops), out: slices.Clone(b.out[:len(b.ops)])}
	calls := own.undo(taken)
	result := make(chan error, 1)
	go func() { result <- own.run(context.WithoutCancel(ctx), calls) }()
	timer := time.NewTimer(time.Until(deadline)) //nolint:forbidigo // deadlines are on the real clock
	defer timer.Stop()
	var err error
	select {
	case err = <-result:
	case <-timer.C:
		b.untake(taken)
		return nil
	}
	for _, t := range taken {
		for _, c := range t.checks {
			b.out[c.index] = own.out[c.index]
		}
	}
	return err
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
		u := &call{slot: t.slot}
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
