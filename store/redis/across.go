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
// What is given back counts from before the take, so that time has drained at
// least as much as the refund assumes: it may return too little, never too
// much. A call that failed may have taken all the same; it is not given back,
// for the same reason.
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
	began := time.Now() //nolint:forbidigo // to measure how long the takes took
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
	err := b.run(context.WithoutCancel(ctx), b.undo(taken, began))
	if failed == nil {
		return err
	}
	return errors.Join(failed, err)
}

// undo returns the calls that give back what those took and then say what Peek
// says.
func (b *batch) undo(taken []*call, began time.Time) []*call {
	calls := make([]*call, 0, len(taken))
	for _, t := range taken {
		u := &call{slot: t.slot}
		for _, c := range t.checks {
			d := &b.out[c.index]
			left := d.ResetAfter
			if !b.store.options.CallerTime {
				left -= time.Since(began) //nolint:forbidigo // see across
			}
			if d.Granted == 0 || left <= 0 {
				continue
			}
			refund := b.ops[c.index]
			refund.Kind, refund.Cost, refund.Duration = headgate.Refund, d.Granted, left
			u.checks = append(u.checks, check{index: -1, kind: headgate.Refund, op: &refund})
		}
		for _, c := range t.checks {
			u.checks = append(u.checks, check{index: c.index, kind: headgate.Peek})
		}
		calls = append(calls, u)
	}
	return calls
}
