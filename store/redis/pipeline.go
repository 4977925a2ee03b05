package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/store"
)

// Do executes a Batch. Op.At is ignored unless Options.CallerTime is set.
//
// All ops of a group in one cluster slot (without a cluster: all ops) are one script
// call, so that an error of one group does not affect others. Calls of several groups, to
// several slots, or of many independent ops, go out together, about 500 ops at a time.
// Groups without an answer when the Timeout ends have an error: those that were sent may
// have counted; the rest is not sent.
//
// AllOrNothing is atomic within one slot. Across slots each slot takes separately, and
// if one refuses, the others are undone: for a moment other requests may be refused,
// but nothing is ever admitted too much. Slots with a queue (see store.Queue) or with a
// limit that counts refusals take one after another, a round trip each, once all others have allowed. If the Timeout ends first, undoing
// continues after Do has returned. Kinds that cannot be undone (see store.CanRefund) across
// slots, and all with Options.StrictAtomic, return store.ErrCrossSlot.
//
// Groups that share a key are executed in order, with two exceptions: the server has
// just lost some of its scripts, or one of them spans slots and has a queue, counts refusals or must be
// undone. Groups after one that is undone that were refused only because of it are sent
// again.
func (s *Store) Do(ctx context.Context, b *store.Batch) {
	if store.Single(b) {
		op := &b.Ops[0]
		switch {
		case op.Kind == store.KindTimes:
			b.Groups[0].Err = s.readTimes(ctx, b)
			return
		case op.Share == nil && op.Validate() == nil && !op.Rule.Unlimited && s.trust.trusts(s.trust.slotOf(op.Key)):
			b.Out[0], _, b.Groups[0].Err = s.take(ctx, op)
			return
		}
	}
	s.doGroups(ctx, b)
}

// doGroups is Do for whatever has no shorter way.
func (s *Store) doGroups(ctx context.Context, all *store.Batch) {
	deadline := earlier(ctx, time.Now().Add(s.options.Timeout)) //nolint:forbidigo // deadlines are on the real clock
	ops, out, groups := all.Ops, all.Out, all.Groups
	p := pipeline{store: s, deadline: deadline, batches: make([]batch, len(groups))}
	todo := make([]int, 0, len(groups))
	for i := range groups {
		b, g := &p.batches[i], &groups[i]
		b.store, b.ops, b.out = s, ops[:g.Ops], out[:g.Ops]
		ops, out = ops[g.Ops:], out[g.Ops:]
		if g.Err = b.open(g.Mode); g.Err == nil && len(b.calls) > 0 {
			todo = append(todo, i)
		}
	}
	for len(todo) > 0 {
		n := len(todo) // go out next
		for i, of := 0, 0; i < n; i++ {
			if of += len(p.batches[todo[i]].ops); of > maxOps && i > 0 {
				n = i
			}
		}
		now := todo[:n]
		for todo = todo[n:]; len(now) > 0; {
			p.sendCalls(ctx, now)
			p.sendLast(ctx, now)
			if now = p.join(ctx, now, groups); p.isLate() {
				break
			}
			for _, i := range now {
				p.batches[i].calls = nil
				p.batches[i].group(groups[i].Mode)
			}
		}
	}
}

// maxOps is about how many ops go out together. The client gets either all their
// answers or none, so with too many, none would be answered in time.
const maxOps = 512

func (p *pipeline) isLate() bool {
	return !time.Now().Before(p.deadline) //nolint:forbidigo // deadlines are on the real clock
}

// open divides b into calls, or returns why that is impossible.
func (b *batch) open(mode store.Mode) error {
	for i := range b.ops {
		op := &b.ops[i]
		if err := op.Validate(); err != nil {
			return err
		}
		if op.Kind == store.KindTimes {
			return errTimesAlone
		}
		if op.Rule.Unlimited {
			b.out[i] = unlimited(op, op.Kind)
		}
	}
	if b.store.closed.Load() {
		return store.ErrClosed
	}
	b.group(mode)
	if mode == store.AllOrNothing && len(b.calls) > 1 {
		return b.divisible()
	}
	return nil
}

// errTimesAlone is the caller's mistake.
var errTimesAlone = errors.New("redis: times of a key are read alone, in a Batch of one op")

// pipeline is one call of doGroups.
type pipeline struct {
	store    *Store
	deadline time.Time
	batches  []batch // by group
	asked    bool
	cloned   bool // whether the ops are copies
}

// errLate is the error of a call that was abandoned or not sent in time.
var errLate = fmt.Errorf("redis: %w: %w", store.ErrUnavailable, context.DeadlineExceeded)

// sendCalls sends the calls of groups and sets their errors. Calls to trusted servers go out
// together from this goroutine. Calls to each other slot go out from their own
// goroutine, so that an unreachable server does not delay the answers of others.
func (p *pipeline) sendCalls(ctx context.Context, groups []int) {
	if d, ok := ctx.Deadline(); p.asked && (!ok || d.After(p.deadline)) { // the first calls end then anyway
		bounded, cancel := context.WithDeadline(ctx, p.deadline)
		defer cancel()
		ctx = bounded
	}
	p.asked = true
	var here []*call
	late := p.isLate()
	var apart map[uint16][]*call
	for _, i := range groups {
		for _, c := range p.batches[i].calls {
			if c.sent {
				continue
			}
			c.sent = true
			switch {
			case late:
				c.err = errLate
			case p.store.trust.trusts(c.slot):
				here = append(here, c)
			case apart == nil:
				apart = map[uint16][]*call{c.slot: {c}}
			default:
				apart[c.slot] = append(apart[c.slot], c)
			}
		}
	}
	if len(apart) == 0 {
		p.store.sendAll(ctx, here)
		return
	}
	p.clone()
	answers := make(chan leftBehind, len(apart))
	for _, calls := range apart {
		part := leave(calls)
		go func() {
			p.store.sendAll(ctx, part.own)
			answers <- part
		}()
	}
	p.store.sendAll(ctx, here)
	p.collect(answers, len(apart))
}

// sendLast sends the calls of groups that wait for the answers to others.
func (p *pipeline) sendLast(ctx context.Context, groups []int) {
	for {
		due := false
		for _, i := range groups {
			due = p.batches[i].takeLast() || due
		}
		if !due {
			return
		}
		p.sendCalls(ctx, groups)
	}
}

// clone copies the ops for calls that may be abandoned.
func (p *pipeline) clone() {
	if p.cloned {
		return
	}
	p.cloned = true
	for i := range p.batches {
		p.batches[i].ops = cloneOps(p.batches[i].ops)
	}
}

// collect waits for n answers or until the time is over. Answers that arrived in time
// count, even if they are read later.
func (p *pipeline) collect(answers <-chan leftBehind, n int) {
	timer := time.NewTimer(time.Until(p.deadline)) //nolint:forbidigo // deadlines are on the real clock
	defer timer.Stop()
	for patient := true; n > 0; {
		select {
		case part := <-answers:
			part.take()
			n--
		case end := <-timer.C:
			for ; len(answers) > 0; n-- {
				part := <-answers
				part.take()
			}
			grace := graceFor(end.Sub(p.deadline))
			if !patient || grace == 0 {
				return
			}
			patient = false
			timer.Reset(grace)
		}
	}
}

// leftBehind holds calls, and copies of them that run in another goroutine and may have
// to be abandoned.
type leftBehind struct{ calls, own []*call }

// leave makes the copies.
func leave(calls []*call) leftBehind {
	part := leftBehind{calls, make([]*call, len(calls))}
	for i, c := range calls {
		own := *c
		own.of = &batch{store: c.of.store, ops: c.of.ops, out: make([]store.Decision, len(c.of.ops))}
		part.own[i] = &own
		c.err = errLate
	}
	return part
}

// take copies the results back.
func (l leftBehind) take() {
	for i, c := range l.calls {
		of := c.of
		*c = *l.own[i]
		for _, at := range c.checks {
			of.out[at] = c.of.out[at]
		}
		c.of = of
	}
}

// join sets the errors of groups, combines the answers of groups in several slots, and
// undoes the takes of refused groups. It returns the groups that were refused only
// because of takes that are now undone.
func (p *pipeline) join(ctx context.Context, todo []int, groups []store.Group) (again []int) {
	var back []*unwanted
	var of []int // the group of each call
	given := map[string]bool{}
	for _, i := range todo {
		b, g := &p.batches[i], &groups[i]
		g.Err = nil
		for _, c := range b.calls {
			if g.Err == nil {
				g.Err = c.err
			}
		}
		if g.Mode == store.Independent {
			continue
		}
		taken, refused := b.taken()
		if !refused {
			continue
		}
		if g.Err == nil && b.wants(given) {
			again = append(again, i)
		}
		b.peekUnlimited()
		if len(taken) > 0 {
			u := &unwanted{batch: b}
			for _, c := range taken {
				u.at = append(u.at, c.checks...)
			}
			back, of = append(back, u), append(of, i)
			b.remember(taken, given)
		}
	}
	if len(back) == 0 {
		return nil
	}
	slices.Reverse(back) // the last is undone first
	slices.Reverse(of)
	p.refund(ctx, back)
	for i, u := range back {
		if u.err != nil {
			groups[of[i]].Err = errors.Join(groups[of[i]].Err, u.err)
		}
	}
	return slices.DeleteFunc(again, func(i int) bool { return groups[i].Err != nil })
}

// remember adds the keys from which taken took something.
func (b *batch) remember(taken []*call, given map[string]bool) {
	for _, c := range taken {
		for i, at := range c.checks {
			if b.out[at].Granted > 0 {
				given[c.keys[i]] = true
			}
		}
	}
}

// wants reports whether b was refused only under keys in given.
func (b *batch) wants(given map[string]bool) bool {
	if len(given) == 0 {
		return false
	}
	for _, c := range b.calls {
		for i, at := range c.checks {
			if !b.out[at].Allowed && !given[c.keys[i]] {
				return false
			}
		}
	}
	return true
}

// sendAll sends calls in one round trip and sets the error of each.
func (s *Store) sendAll(ctx context.Context, calls []*call) {
	if len(calls) == 0 {
		return
	}
	epoch := s.trust.epoch.Load()
	client, callContext, err := s.begin(ctx)
	if err != nil {
		for _, c := range calls {
			c.err = err
		}
		return
	}
	for _, c := range calls {
		c.of.prepare(c, callContext.deadline)
	}
	s.send(callContext, client, calls, byName)
	_ = s.finish(ctx, callContext, worst(calls)) // each error is reported below
	for _, c := range calls {
		if c.err == nil {
			s.trust.gain(c.slot, epoch)
		} else {
			s.doubt(c.err)
			c.err = s.asStoreError(ctx, c.err)
		}
	}
}

// worst returns the error that says most about the servers: first that one did not
// answer, then any other error that is not an answer, then any.
func worst(calls []*call) error {
	var found error
	for _, c := range calls {
		switch {
		case c.err == nil:
		case errors.Is(c.err, context.DeadlineExceeded):
			return c.err
		case found == nil || answerOf(found) != nil:
			found = c.err
		}
	}
	return found
}
