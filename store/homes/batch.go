package homes

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// part is what one store is asked of a group.
type part struct {
	group *whole
	to    int   // the store
	at    []int // the indexes of its ops
	err   error
	peeks bool  // it takes nothing, because another part is refused, or not yet
	last  bool  // it takes once all others have allowed: it has a queue or counts refusals
	queue int64 // the burst of its smallest queue; 0 if it has none
}

// whole is a group whose parts are in several stores.
type whole struct {
	group *store.Group
	first int // the index of its first op
	parts []*part
}

// batch is a call about several stores.
type batch struct {
	*Store
	*store.Batch

	wholes []whole
}

// divide executes groups that are about several stores.
func (s *Store) divide(ctx context.Context, all *store.Batch) {
	groups := all.Groups
	b := &batch{Store: s, Batch: all, wholes: make([]whole, len(groups))}
	now, later := make([][]*part, len(s.stores)), make([][]*part, len(s.stores))
	first := 0
	for i := range groups {
		w := &b.wholes[i]
		*w = whole{group: &groups[i], first: first}
		first += groups[i].Ops
		if groups[i].Err = b.open(w); groups[i].Err != nil {
			continue
		}
		b.takeLast(w)
		for _, p := range w.parts {
			if p.to != own && w.dependent() {
				later[p.to] = append(later[p.to], p)
			} else {
				now[p.to] = append(now[p.to], p)
			}
		}
	}
	b.ask(ctx, now, later)
	b.join(ctx)
}

// open divides w into parts, the own one first, or returns why that is impossible.
func (b *batch) open(w *whole) error {
	by := make([]*part, len(b.stores))
	stores := 0
	for i := w.first; i < w.first+w.group.Ops; i++ {
		if err := b.Ops[i].Validate(); err != nil {
			return err
		}
		at := b.place(headgate.LimitOf(b.Ops[i].Rule))
		if by[at] == nil {
			by[at] = &part{group: w, to: at}
			stores++
		}
		by[at].at = append(by[at].at, i)
	}
	for _, p := range by {
		if p != nil {
			w.parts = append(w.parts, p)
		}
	}
	if stores > 1 && w.group.Mode == store.AllOrNothing {
		return b.divisible(w)
	}
	return nil
}

// divisible returns why the ops of w cannot be divided between stores.
func (b *batch) divisible(w *whole) error {
	for i := w.first; i < w.first+w.group.Ops; i++ {
		if kind := b.Ops[i].Kind; !store.CanRefund(kind) {
			return fmt.Errorf("homes: in several regions, %s cannot be undone: %w", kind, store.ErrCrossSlot)
		}
	}
	return nil
}

// dependent reports whether the parts in other regions wait for the own one: that is
// asked at once, and if it refuses nothing needs to be given back across the ocean.
func (w *whole) dependent() bool {
	return w.group.Mode == store.AllOrNothing && len(w.parts) > 1 && w.parts[0].to == own
}

// takeLast makes the parts of w with a queue or a limit that counts refusals only peek at
// first, because places in a queue and refusals that counted cannot be given back; see
// store.Queue. A home that is asked last needs no peek.
func (b *batch) takeLast(w *whole) {
	if w.group.Mode != store.AllOrNothing || len(w.parts) == 1 {
		return
	}
	for i, p := range w.parts {
		if i == 1 && len(w.parts) == 2 && w.dependent() && !w.parts[0].last {
			return
		}
		p.queue = store.SmallestQueue(b.Ops, p.at)
		p.last = p.queue > 0 || store.CountsRefusals(b.Ops, p.at)
		p.peeks = p.last
	}
}

// ask asks all stores: the own one on this goroutine, those of later after it, and at the
// end those that take last; see takes.
func (b *batch) ask(ctx context.Context, now, later [][]*part) {
	var wait sync.WaitGroup
	send := func(parts [][]*part) {
		for i, list := range parts {
			if i != own && len(list) > 0 {
				wait.Go(func() { b.send(ctx, i, list) })
			}
		}
	}
	send(now)
	b.send(ctx, own, now[own])
	for _, list := range later {
		for _, p := range list {
			if b.refuses(p.group.parts[0]) {
				p.peeks, p.last = true, false
			}
		}
	}
	send(later)
	wait.Wait()
	for {
		var last [][]*part
		for i := range b.wholes {
			last = b.takes(&b.wholes[i], last)
		}
		if last == nil {
			return
		}
		send(last)
		b.send(ctx, own, last[own])
		wait.Wait()
	}
}

// takes adds to last the part of w that takes next: of those that have peeked, the
// one with the smallest queue if all others have allowed, otherwise that of those whose
// refusal counts. All requests take them one after another in the same order, so that of
// two for the last places of two queues one gets both, and not each one of them, which
// would stay empty.
func (b *batch) takes(w *whole, last [][]*part) [][]*part {
	allowed := !b.refused(w) && !failed(b.errorOf(w))
	var next *part
	for _, p := range w.parts {
		if p.last && p.peeks && p.err == nil && (allowed || b.counts(p)) && (next == nil || p.queue < next.queue) {
			next = p
		}
	}
	if next == nil {
		return last
	}
	if next.peeks = false; last == nil {
		last = make([][]*part, len(b.stores))
	}
	last[next.to] = append(last[next.to], next)
	return last
}

// refuses reports whether p was answered, and one of its ops refused, or would be.
func (b *batch) refuses(p *part) bool {
	return p.err == nil && slices.ContainsFunc(p.at, func(at int) bool {
		if p.last && p.peeks {
			refuses, _ := store.Refuses(&b.Ops[at], &b.Out[at])
			return refuses
		}
		return !b.Out[at].Allowed
	})
}

// counts reports whether the refusal of p, which has peeked, counts.
func (b *batch) counts(p *part) bool {
	return slices.ContainsFunc(p.at, func(at int) bool {
		_, counts := store.Refuses(&b.Ops[at], &b.Out[at])
		return counts
	})
}

// send asks one store about parts of groups, and copies its answers.
func (b *batch) send(ctx context.Context, to int, parts []*part) {
	if len(parts) == 0 {
		return
	}
	call := store.Batch{Groups: make([]store.Group, len(parts))}
	for i, p := range parts {
		call.Groups[i] = store.Group{Ops: len(p.at), Mode: p.group.group.Mode}
		for _, at := range p.at {
			op := b.Ops[at]
			if p.peeks {
				op.Kind = store.KindPeek
			}
			call.Ops = append(call.Ops, op)
		}
	}
	call.Out = make([]store.Decision, len(call.Ops))
	b.stores[to].Do(ctx, &call)
	out := call.Out
	for i, p := range parts {
		p.err = b.named(to, call.Groups[i].Err)
		for j, at := range p.at {
			b.Out[at] = out[j]
		}
		out = out[len(p.at):]
	}
}
