package redis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/store"
)

// All or nothing in several slots: each slot takes separately. If one refuses or fails,
// the takes of the others are undone; see pipeline.join. Places in a queue cannot be given
// back, nor can a refusal that counts, such as of a request that meanwhile finds the limit
// used up. So slots with queues or such limits take once all others have allowed; see
// batch.takeLast. They refuse then only what another request has taken in between.
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
		if kind := b.ops[i].Kind; !store.CanRefund(kind) {
			return fmt.Errorf("redis: %s cannot be undone: %w", kind, store.ErrCrossSlot)
		}
	}
	return nil
}

// taken returns the calls to slots that took although the batch was refused or failed.
func (b *batch) taken() (taken []*call, refused bool) {
	for _, c := range b.calls {
		switch {
		case c.err != nil || !c.allowed:
			refused = true
		case !c.peeks:
			taken = append(taken, c)
		}
	}
	if !refused {
		return nil, false
	}
	return taken, true
}

// takeLast makes one of the calls that have only peeked due: the one with the smallest
// queue if all of b was allowed, otherwise that of those whose refusal counts. It reports
// whether there is one.
// All requests take them in the same order, so that of two for the last places of two
// queues one gets both, and not each one of them, which would stay empty.
func (b *batch) takeLast() bool {
	allowed := !slices.ContainsFunc(b.calls, func(c *call) bool { return c.err != nil || !c.allowed })
	var next *call
	for _, c := range b.calls {
		if c.peeks && c.err == nil && (allowed || c.counts) && (next == nil || c.takesBefore(next)) {
			next = c
		}
	}
	if next == nil {
		return false
	}
	next.peeks, next.sent = false, false
	return true
}

func (c *call) takesBefore(other *call) bool {
	return cmp.Or(cmp.Compare(c.queue, other.queue), cmp.Compare(c.slot, other.slot)) < 0
}

// unwanted is what a batch took and must return.
type unwanted struct {
	*batch

	at  []int // the indexes of the ops
	err error
}

// refund undoes the takes of all of list in one round trip, and waits for it until the
// deadline. It runs even if the callers have gone.
func (p *pipeline) refund(ctx context.Context, list []*unwanted) {
	call := new(store.Batch)
	for _, u := range list {
		store.AddRefunds(call, u.ops, u.out, u.at)
	}
	call.Ops = cloneOps(call.Ops)
	done := make(chan struct{})
	go func() {
		p.store.doGroups(context.WithoutCancel(ctx), call)
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Until(p.deadline)): //nolint:forbidigo // deadlines are on the real clock
		for _, u := range list {
			u.asPeeks(u.at)
		}
		return
	}
	for i, u := range list {
		u.err = call.Groups[i].Err
		store.Peeks(call, i, u.out, u.at)
	}
}

// asPeeks changes the decisions of takes to those of Peek, as far as possible without
// asking the server.
func (b *batch) asPeeks(at []int) {
	for _, i := range at {
		op, d := b.ops[i], &b.out[i]
		if store.RefundOf(&op, d) {
			d.Remaining += d.Granted
		}
		d.Granted, d.Delay, d.Lease, d.CountsUntil = 0, 0, 0, 0
	}
}
