package homes

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// join sets the errors of groups, and gives back what refused ones took.
func (b *batch) join(ctx context.Context) {
	back := make([][]*part, len(b.stores))
	for i := range b.wholes {
		w := &b.wholes[i]
		if w.group.Err != nil {
			continue
		}
		w.group.Err = b.errorOf(w)
		_, useful := errors.AsType[*store.PartError](w.group.Err)
		if w.group.Mode == headgate.Independent || !b.refused(w) && (w.group.Err == nil || useful) {
			continue
		}
		for _, p := range w.parts {
			if p.err == nil && !p.peeks && len(w.parts) > 1 && !b.refuses(p) {
				back[p.to] = append(back[p.to], p)
			}
		}
	}
	var wait sync.WaitGroup
	for i, parts := range back {
		if len(parts) > 0 {
			wait.Go(func() { b.giveBack(context.WithoutCancel(ctx), i, parts) })
		}
	}
	wait.Wait()
}

// refused reports whether a part of w was refused.
func (b *batch) refused(w *whole) bool { return slices.ContainsFunc(w.parts, b.refuses) }

// errorOf returns the first error of w's parts, which names the ops that failed unless
// these were all and the own store's.
func (b *batch) errorOf(w *whole) error {
	var first error
	var failed []bool
	for _, p := range w.parts {
		if p.err == nil {
			continue
		}
		if first == nil {
			first, failed = p.err, make([]bool, w.group.Ops)
		}
		for _, i := range p.at {
			failed[i-w.first] = true
		}
	}
	if first == nil || !b.options.Partial || !errors.Is(first, headgate.ErrUnavailable) {
		return first
	}
	if len(w.parts) == 1 && w.parts[0].to == own {
		return first
	}
	return &store.PartError{Err: first, Failed: failed}
}

// giveBack undoes what parts took in one store and answers as Peek does. What cannot be
// given back now stays taken: the refusal is right anyway.
func (b *batch) giveBack(ctx context.Context, to int, parts []*part) {
	var ops []headgate.Op
	groups := make([]store.Group, len(parts))
	for i, p := range parts {
		before := len(ops)
		for _, at := range p.at {
			if op, took := b.undo(at); took {
				ops = append(ops, op)
			}
		}
		for _, at := range p.at {
			op := b.ops[at]
			op.Kind = headgate.Peek
			ops = append(ops, op)
		}
		groups[i] = store.Group{Ops: len(ops) - before, Mode: headgate.Independent}
	}
	out := make([]headgate.Decision, len(ops))
	store.Pipeline(ctx, b.stores[to], ops, out, groups)
	for i, p := range parts {
		peeks := out[groups[i].Ops-len(p.at) : groups[i].Ops]
		for j, at := range p.at {
			if d := &b.out[at]; groups[i].Err == nil {
				*d = peeks[j]
			} else {
				d.Granted, d.Delay, d.Lease, d.CountsUntil = 0, 0, 0, 0
			}
		}
		out = out[groups[i].Ops:]
	}
}

// undo returns the op that gives back what an op took, and false if that is nothing.
func (b *batch) undo(at int) (headgate.Op, bool) {
	op, d := b.ops[at], &b.out[at]
	op.Kind, op.Cost, op.CountsUntil, op.Duration = headgate.Refund, d.Granted, d.CountsUntil, d.ResetAfter
	if op.Limit.Algorithm() == headgate.Concurrency {
		op.Kind, op.Lease = headgate.Release, d.Lease
	}
	return op, d.Granted > 0
}
