package homes

import (
	"context"
	"errors"
	"slices"
	"sync"

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
		if w.group.Mode == store.Independent || !b.refused(w) && !failed(w.group.Err) {
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
			wait.Go(func() { b.refund(context.WithoutCancel(ctx), i, parts) })
		}
	}
	wait.Wait()
}

// failed reports whether err leaves nothing of a group that could be used.
func failed(err error) bool {
	_, useful := errors.AsType[*store.PartError](err)
	return err != nil && !useful
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
	if first == nil || !b.options.Partial || !errors.Is(first, store.ErrUnavailable) {
		return first
	}
	if len(w.parts) == 1 && w.parts[0].to == own {
		return first
	}
	return &store.PartError{Err: first, Failed: failed}
}

// refund undoes what parts took in one store and answers as Peek does. What cannot be
// given back now stays taken: the refusal is right anyway.
func (b *batch) refund(ctx context.Context, to int, parts []*part) {
	var call store.Batch
	slices.Reverse(parts) // the last is undone first
	for _, p := range parts {
		store.AddRefunds(&call, b.Ops, b.Out, p.at)
	}
	b.stores[to].Do(ctx, &call)
	for i, p := range parts {
		if call.Groups[i].Err == nil {
			store.Peeks(&call, i, b.Out, p.at)
			continue
		}
		for _, at := range p.at {
			d := &b.Out[at]
			d.Granted, d.Delay, d.Lease, d.CountsUntil = 0, 0, 0, 0
		}
	}
}
