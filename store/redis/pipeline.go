package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var _ store.Pipeliner = (*Store)(nil)

// Pipeline implements store.Pipeliner. Each group is its own script call, or one per
// cluster slot, so that an error of one does not affect others. They go out together,
// about 500 ops at a time. Groups without an answer when the Timeout ends have an
// error: those that were sent may have counted; the rest is not sent.
//
// Groups that share a key are executed in order, with two exceptions: the server has
// just lost some of its scripts, or one of them spans slots and must be undone. A group
// across slots that is refused is undone as in [Store.Do]; groups after it that were
// refused only because of it are sent again.
func (s *Store) Pipeline(ctx context.Context, ops []headgate.Op, out []headgate.Decision, groups []store.Group) {
	deadline := earlier(ctx, time.Now().Add(s.options.Timeout)) //nolint:forbidigo // deadlines are on the real clock
	p := pipeline{store: s, deadline: deadline, batches: make([]batch, len(groups))}
	var todo []int
	for i := range groups {
		b, g := &p.batches[i], &groups[i]
		b.store, b.ops, b.out = s, ops[:g.Ops], out[:g.Ops]
		ops, out = ops[g.Ops:], out[g.Ops:]
		if g.Err = b.open(g.Mode); g.Err == nil && len(b.calls) > 0 {
			todo = append(todo, i)
		}
	}
	for len(todo) > 0 {
		n := p.share(todo)
		p.answer(ctx, todo[:n], groups)
		todo = todo[n:]
	}
}

// maxOps is about how many ops go out together. The client gets either all their
// answers or none, so with too many, none would be answered in time.
const maxOps = 512

// share returns how many of todo go out next.
func (p *pipeline) share(todo []int) int {
	ops := 0
	for n, i := range todo {
		if ops += len(p.batches[i].ops); ops > maxOps && n > 0 {
			return n
		}
	}
	return len(todo)
}

// answer sends groups and sets their errors.
func (p *pipeline) answer(ctx context.Context, todo []int, groups []store.Group) {
	for len(todo) > 0 {
		p.ask(ctx, todo)
		todo = p.join(ctx, todo, groups)
		if p.isLate() {
			return
		}
		for _, i := range todo {
			p.batches[i].calls = nil
			p.batches[i].group(groups[i].Mode)
		}
	}
}

func (p *pipeline) isLate() bool {
	return !time.Now().Before(p.deadline) //nolint:forbidigo // deadlines are on the real clock
}

// open divides b into calls, or returns why that is impossible.
func (b *batch) open(mode headgate.Mode) error {
	for i := range b.ops {
		op := &b.ops[i]
		if err := op.Validate(); err != nil {
			return err
		}
		if op.Limit.IsUnlimited() {
			b.out[i] = unlimited(op, op.Kind)
		}
	}
	if b.store.closed.Load() {
		return headgate.ErrClosed
	}
	b.group(mode)
	if mode == headgate.AllOrNothing && len(b.calls) > 1 {
		return b.divisible()
	}
	return nil
}

// pipeline is one call of Pipeline.
type pipeline struct {
	store    *Store
	deadline time.Time
	batches  []batch // by group
	cloned   bool    // whether the ops are copies
}

// errLate is the error of a call that was abandoned or not sent in time.
var errLate = fmt.Errorf("redis: %w: %w", headgate.ErrUnavailable, context.DeadlineExceeded)

// ask sends the calls of groups and sets their errors. Calls to trusted servers go out
// together from this goroutine. Calls to each other slot go out from their own
// goroutine, so that an unreachable server does not delay the answers of others.
func (p *pipeline) ask(ctx context.Context, groups []int) {
	if d, ok := ctx.Deadline(); !ok || d.After(p.deadline) {
		bounded, cancel := context.WithDeadline(ctx, p.deadline)
		defer cancel()
		ctx = bounded
	}
	var here []*call
	late := p.isLate()
	apart := map[uint16][]*call{}
	for _, i := range groups {
		for _, c := range p.batches[i].calls {
			switch {
			case late:
				c.err = errLate
			case p.store.trust.in(c.slot):
				here = append(here, c)
			default:
				apart[c.slot] = append(apart[c.slot], c)
			}
		}
	}
	if len(apart) > 0 {
		p.clone()
	}
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
	if n == 0 {
		return
	}
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
		own.of = &batch{store: c.of.store, ops: c.of.ops, out: make([]headgate.Decision, len(c.of.ops))}
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
		for _, check := range c.checks {
			of.out[check.index] = c.of.out[check.index]
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
		g.Err = firstError(b.calls)
		if g.Mode == headgate.Independent {
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
			back, of = append(back, &unwanted{batch: b, taken: taken}), append(of, i)
			b.note(taken, given)
		}
	}
	if len(back) == 0 {
		return nil
	}
	p.store.giveBack(ctx, back, p.deadline)
	for i, u := range back {
		if u.err != nil {
			groups[of[i]].Err = errors.Join(groups[of[i]].Err, u.err)
		}
	}
	return slices.DeleteFunc(again, func(i int) bool { return groups[i].Err != nil })
}

// note adds the keys from which taken took something.
func (b *batch) note(taken []*call, given map[string]bool) {
	for _, c := range taken {
		for i, check := range c.checks {
			if b.out[check.index].Granted > 0 {
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
		for i, check := range c.checks {
			if !b.out[check.index].Allowed && !given[c.keys[i]] {
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
		c.of.prepare(c)
	}
	s.send(callContext, client, calls, byName)
	_ = s.finish(ctx, callContext, worst(calls)) // each error is reported below
	for _, c := range calls {
		if c.err == nil {
			s.trust.gain(c.slot, epoch)
		} else {
			s.doubt(c.err)
			c.err = s.told(ctx, c.err)
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

// firstError returns the first error in calls, or nil.
func firstError(calls []*call) error {
	for _, c := range calls {
		if c.err != nil {
			return c.err
		}
	}
	return nil
}
