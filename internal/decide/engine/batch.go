package engine

import (
	"context"

	"github.com/headgate/headgate"
)

// DecideBatch answers n queries as if each were decided by itself, in order,
// and hands each verdict, with the error of Decide, to answer, which must not
// keep it. A store that is a headgate.Pipeliner is asked about all of them at
// once, within the time that one query may take; what of that must wait for an
// answer, which is what rules that only observe are charged, and what disguises
// a hidden refusal, follows for all of them at once. query is called once for
// each before the first answer, or right before its own answer.
func (e *Engine) DecideBatch(ctx context.Context, n int, query func(i int) Query, answer func(i int, v *Verdict, err error)) {
	store, ok := e.store.(headgate.Pipeliner)
	if !ok || n < 2 {
		var v Verdict
		var err error
		for i := range n {
			v, err = e.Decide(ctx, query(i))
			answer(i, &v, err)
			v.Release()
		}
		return
	}
	if e.timeout > 0 {
		bounded, cancel := context.WithTimeout(ctx, e.timeout)
		defer cancel()
		ctx = bounded
	}
	b := &batch{Engine: e, store: store, items: make([]asking, n)}
	for i := range b.items {
		b.begin(&b.items[i], query(i))
	}
	b.enforceAll(ctx)
	b.disguiseAll(ctx)
	b.observeAll(ctx)
	for i := range b.items {
		x := &b.items[i]
		if e.observer != nil {
			e.observer.Decided(ctx, x.mark, x.q, x.v, x.err)
		}
		answer(i, &x.v, x.err)
		x.v.Release()
	}
}

// asking is one query of a batch.
type asking struct {
	q         Query
	v         Verdict
	mark      Mark
	err       error
	next      step
	observing bool
	hidden    bool // it is refused, and clients must not learn of it
}

// batch are queries that are decided together.
type batch struct {
	*Engine

	store headgate.Pipeliner
	items []asking

	ops    []headgate.Op
	out    []headgate.Decision
	groups []headgate.Group
	owners []*asking // of each group
}

// begin finds out what there is to ask about q.
func (b *batch) begin(x *asking, q Query) {
	s, _ := b.scratch.Get().(*scratch)
	x.q, x.v = q, Verdict{Allowed: true, at: q.At, pool: &b.scratch, scratch: s}
	x.v.Decision = headgate.Decision{Allowed: true, Reason: headgate.NoLimit}
	x.mark.Lane = s.lane
	if b.observer != nil {
		x.mark.Start = b.observer.Deciding(q.At, s.lane)
	}
	var observing int
	x.next, observing, x.err = b.prepare(q, nil, &x.v)
	x.observing = observing > 0
	if x.next == bans {
		x.hidden = x.v.banned()
	}
}

// enforceAll asks about the rules that count, and settles the verdicts. Of
// requests with a hidden ban it asks what disguises that.
func (b *batch) enforceAll(ctx context.Context) {
	for i := range b.items {
		x := &b.items[i]
		switch {
		case x.next == asks:
			x.v.scratch.ops(x.q, x.q.Kind, enforcedOnly)
			b.add(x, headgate.AllOrNothing)
		case x.hidden:
			x.v.scratch.disguising(x.q)
			b.add(x, headgate.AllOrNothing)
		}
	}
	b.put(ctx, func(x *asking, err error) {
		if x.hidden {
			x.err = b.disguised(ctx, x.q, &x.v, err)
			return
		}
		x.err = b.enforced(ctx, x.q, &x.v, err)
		x.hidden = x.err == nil && x.v.hides(x.q)
	})
}

// disguiseAll asks what disguises that hidden rules have refused.
func (b *batch) disguiseAll(ctx context.Context) {
	for i := range b.items {
		if x := &b.items[i]; x.hidden && x.next == asks {
			x.v.scratch.disguising(x.q)
			b.add(x, headgate.AllOrNothing)
		}
	}
	b.put(ctx, func(x *asking, err error) { x.err = b.disguised(ctx, x.q, &x.v, err) })
}

// observeAll asks about the rules that only observe; see Engine.observe.
func (b *batch) observeAll(ctx context.Context) {
	for i := range b.items {
		x := &b.items[i]
		if !x.observing {
			continue
		}
		x.v.observing(x.q)
		if x.err != nil {
			x.v.observed(true)
			continue
		}
		b.add(x, headgate.Independent)
	}
	b.put(ctx, func(x *asking, err error) {
		if err != nil {
			x.err = unavailable(err)
		}
		x.v.observed(err != nil)
	})
}

// add puts what x has pending, if anything, behind what is to be asked.
func (b *batch) add(x *asking, mode headgate.Mode) {
	pending := x.v.scratch.pending
	if len(pending) == 0 {
		return
	}
	if len(pending) == 1 {
		mode = headgate.Independent // as ask does, so that a refusal counts where it is to
	}
	b.ops = append(b.ops, pending...)
	b.groups = append(b.groups, headgate.Group{Ops: len(pending), Mode: mode})
	b.owners = append(b.owners, x)
}

// put asks the store and hands the answer to each group to answer.
func (b *batch) put(ctx context.Context, answer func(x *asking, err error)) {
	if len(b.groups) == 0 {
		return
	}
	if cap(b.out) < len(b.ops) {
		b.out = make([]headgate.Decision, len(b.ops))
	}
	b.out = b.out[:len(b.ops)]
	b.store.Pipeline(ctx, b.ops, b.out, b.groups)
	from := 0
	for i, x := range b.owners {
		from += copy(x.v.scratch.out, b.out[from:from+b.groups[i].Ops])
		answer(x, b.groups[i].Err)
	}
	b.ops, b.groups, b.owners = b.ops[:0], b.groups[:0], b.owners[:0]
}
