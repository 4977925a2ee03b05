package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
)

// across executes all or nothing in several slots: each takes by itself, and if
// one refuses or fails, those that took give back.
//
// What a take has added, and what of that has drained by the time it is given
// back, the server knows by its own clock: nothing is returned twice. A call
// that failed may have taken all the same; it is not given back.
func (b *batch) across(ctx context.Context) error {
	if b.store.options.StrictAtomic {
		return fmt.Errorf("redis: %d slots: %w", len(b.calls), headgate.ErrCrossSlot)
	}
	for i := range b.ops {
		switch b.ops[i].Kind {
		case headgate.Take, headgate.TakeUpTo, headgate.Peek, headgate.Charge, headgate.Reserve:
		case headgate.Refund, headgate.Grant, headgate.Reset:
			return fmt.Errorf("redis: %s cannot be undone: %w", b.ops[i].Kind, headgate.ErrCrossSlot)
		}
	}
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
	// Who has taken gives back even if its own caller has gone by now.
	err := b.run(context.WithoutCancel(ctx), b.undo(taken))
	if failed == nil {
		return err
	}
	return errors.Join(failed, err)
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
				u.checks = append(u.checks, check{index: -1, kind: undo, op: &op})
			}
		}
		for _, c := range t.checks {
			u.checks = append(u.checks, check{index: c.index, kind: headgate.Peek})
		}
		calls = append(calls, u)
	}
	return calls
}
