package regions

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// arriving is a gift to this region on its way into the store.
type arriving struct {
	once   store.Op // marks it, so that it is refunded once
	refund store.Op
	of     entity
	begins int64 // of a window: when that begins, by the clock of the key's server
	// By this process's clock: when it may have drained from the giver's bucket (zero for a
	// window), and when it is too old to be acted upon.
	drained, ends time.Time
}

// mostArriving is how many gifts wait at a time for the store, or for their window.
const mostArriving = 10_000

// applied counts a gift once.
func applied() headgate.Limit {
	return headgate.Per(1, appliedFor).WithAlgorithm(store.FixedWindow).WithAnchor(store.AnchorFirstRequest)
}

// clockOf is a limit whose decisions tell the clock of a key's server: what is taken counts
// for a microsecond.
func clockOf() headgate.Limit { return headgate.PerSecond(1_000_000) }

// receive notes what the other region has given to this one. [courier.settle] refunds it.
func (c *courier) receive(in *incoming, gifts []gift) {
	for i := range gifts {
		g := &gifts[i]
		if g.To != c.options.Name {
			continue
		}
		if g.For != "" && c.is.id != "" && g.For != c.is.id {
			c.twin = c.clock()
			c.counts.skipped.Add(1)
			continue
		}
		l := in.limits[g.Limit]
		part := c.parts.of(l.limit)
		if l.err != nil || !part.Rule().Valid() || g.Tokens > l.limit.Burst() || len(c.arriving) >= mostArriving {
			c.counts.skipped.Add(1)
			continue
		}
		a := arriving{
			once:   store.Op{Key: string(g.Key), Scope: c.mark(in, i), Rule: c.once.Rule(), Cost: 1},
			refund: store.Op{Key: string(g.Key), Scope: g.Scope, Rule: part.Rule(), Cost: g.Tokens, Kind: store.KindRefund, CountsUntil: g.Until},
			begins: begins(part.Rule(), g.Until), ends: in.ends,
		}
		a.of = entityOf(&a.refund, l.limit)
		if part.Algorithm() == store.TokenBucket {
			if a.drained = in.drained(l.limit, part, g); !c.clock().Before(a.drained) {
				continue
			}
		}
		c.arriving = append(c.arriving, a)
	}
}

// mark names a gift.
func (c *courier) mark(in *incoming, i int) string {
	return "%regions:" + c.peer + ":" + in.id + ":" + strconv.Itoa(i)
}

// drained returns when what a bucket was charged may have drained from it, by this
// process's clock.
func (in *incoming) drained(whole, part headgate.Limit, g *gift) time.Time {
	r := part.Rule()
	if r.Limit == 0 {
		return time.Time{}
	}
	charged := min(g.Charged, in.at) // later only if a clock was set back in between
	ends := time.UnixMicro(charged).Add(drains(part, g.Tokens) + whole.Rule().RegionAge())
	if r.Tick > 1 { // a step may fall into one more
		ends = ends.Add(-time.Duration(r.Tick) * time.Microsecond)
	}
	return in.asked.Add(ends.Sub(in.theirs))
}

// settle refunds the gifts that have arrived, some at a time, in the windows in which
// their givers were charged. Those whose window has not begun here wait, and so do those
// that the store did not answer.
func (c *courier) settle(ctx context.Context) (err error) {
	waiting := c.arriving
	c.arriving = nil
	for len(waiting) > 0 {
		n := min(len(waiting), mostOps)
		var rest []arriving
		if err == nil {
			rest, err = c.refund(ctx, waiting[:n])
		} else {
			rest = waiting[:n] // the store does not answer
		}
		c.arriving = append(c.arriving, rest...)
		waiting = waiting[n:]
	}
	return err
}

// refund refunds some gifts and returns those that wait. It first asks for the clocks of
// the servers that have the keys, by which windows begin and buckets drain: a gift may be
// late, and in a cluster each server has a clock of its own.
func (c *courier) refund(ctx context.Context, some []arriving) (rest []arriving, err error) {
	some = c.fresh(some)
	ops := make([]store.Op, len(some))
	for i := range some {
		ops[i] = store.Op{Key: some[i].once.Key, Scope: clockScope, Rule: c.tells.Rule(), Cost: 1}
	}
	clocks, groups := c.do(ctx, ops, 1)
	now := c.clock()
	ops = ops[:0]
	var sent []arriving
	for i := range some {
		a := &some[i]
		if groups[i].Err != nil {
			rest, err = c.failed(rest, a, groups[i].Err, err)
			continue
		}
		here := clocks[i].CountsUntil - int64(clocks[i].ResetAfter/time.Microsecond)
		if here < a.begins {
			rest = append(rest, *a)
			continue
		}
		if !a.drained.IsZero() {
			a.refund.CountsUntil = here + int64(a.drained.Sub(now)/time.Microsecond)
		}
		sent, ops = append(sent, *a), append(ops, a.once, a.refund)
	}
	answers, groups := c.do(ctx, ops, 2)
	for i := range sent {
		a := &sent[i]
		switch {
		case groups[i].Err != nil:
			rest, err = c.failed(rest, a, groups[i].Err, err)
		case answers[2*i].Allowed:
			c.thanks = true
			c.counts.received.Add(a.refund.Cost)
			c.demand.received(a.of, a.refund.Cost)
		}
	}
	return rest, err
}

// clockScope is the scope in which clocks are asked for.
const clockScope = "%regions:clock"

// fresh returns the gifts that can still be refunded.
func (c *courier) fresh(some []arriving) []arriving {
	now := c.clock()
	var fresh []arriving
	for i := range some {
		a := &some[i]
		switch {
		case !now.Before(a.ends):
			c.counts.skipped.Add(1)
		case a.drained.IsZero() || now.Before(a.drained):
			fresh = append(fresh, *a)
		}
	}
	return fresh
}

// failed returns rest with a gift that the store did not refund, unless it never will. The
// error is nil if that is about this gift alone.
func (c *courier) failed(rest []arriving, a *arriving, err, before error) ([]arriving, error) {
	switch {
	case errors.Is(err, store.ErrRefused): // it may be a slot that is being moved
		return append(rest, *a), before
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		if before == nil {
			before = err
		}
		return append(rest, *a), before
	}
	c.counts.skipped.Add(1)
	return rest, before
}

// do calls the store that gifts are taken from and refunded to. Of so many ops each, all are
// executed or none.
func (c *courier) do(ctx context.Context, ops []store.Op, each int) ([]store.Decision, []store.Group) {
	b := store.Batch{Ops: ops, Out: make([]store.Decision, len(ops)), Groups: make([]store.Group, len(ops)/each)}
	mode := store.AllOrNothing
	if each == 1 {
		mode = store.Independent
	}
	for i := range b.Groups {
		b.Groups[i] = store.Group{Ops: each, Mode: mode}
	}
	if len(ops) > 0 {
		c.options.Counts.Do(ctx, &b)
	}
	return b.Out, b.Groups
}

// begins returns when the window or sub-window begins that a charge counts in until the
// given time.
func begins(r *store.Rule, until int64) int64 {
	switch r.Algorithm {
	case store.FixedWindow:
		if r.Calendar != store.NoCalendar {
			start, _ := algorithm.CalendarWindow(r.Calendar, r.Zone, until-1)
			return start
		}
		return until - r.Period
	case store.SlidingWindow:
		return ((until-1)/r.Period - 1) * r.Period
	case store.SlidingBuckets:
		return (until - r.Period - 1) / r.Tick * r.Tick
	case store.TokenBucket, store.LeakyBucket, store.SlidingLog, store.Concurrency, store.Distinct:
	}
	return 0
}
