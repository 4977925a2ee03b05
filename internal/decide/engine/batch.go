package engine

import (
	"context"

	"github.com/headgate/headgate/store"
)

// DecideBatch answers n queries as if each were decided separately, in order. It passes
// each verdict, with the error of Decide, to answer, which must not keep it. A store
// that is not store.Direct receives all queries together, within the time that one query
// may take. Later steps that depend on an answer (charging rules that only observe,
// disguising a hidden refusal) also run for all queries together. query is called once
// for each, before the first answer or right before its own.
func (e *Engine) DecideBatch(ctx context.Context, n int, query func(i int) Query, answer func(i int, v *Verdict, err error)) {
	if _, here := e.store.(store.Direct); here || n < 2 {
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
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.timeout) // see deciding.bounded
		defer cancel()
		ctx = bounded
	}
	b := &batch{store: e.store, items: make([]asking, n)}
	for i := range b.items {
		x, q := &b.items[i], query(i)
		x.deciding = e.begin(&q)
		x.start()
		x.err = x.prepare()
	}
	for st := range none {
		b.take(ctx, st)
	}
	for i := range b.items {
		x := &b.items[i]
		if x.err == nil {
			x.err = x.failure
		}
		x.conclude(&x.v)
		x.report(ctx, &x.v, x.err)
		answer(i, &x.v, x.err)
		x.v.Release()
	}
}

// asking is one query of a batch.
type asking struct {
	*deciding

	v   Verdict
	err error
}

// batch holds queries that are decided together. Each takes its own steps; those with
// the same step call the store together.
type batch struct {
	store.Batch

	store  store.Store
	items  []asking
	owners []*asking // for each group
}

// take runs one step for all queries that have it.
func (b *batch) take(ctx context.Context, st step) {
	for i := range b.items {
		x := &b.items[i]
		if x.todo&(1<<st) == 0 {
			continue
		}
		if x.questions(st); x.lost() != nil || len(x.pending) == 0 {
			x.answers(ctx, st, x.lost())
			continue
		}
		mode := st.mode()
		if len(x.pending) == 1 {
			mode = store.Independent // as put does, so that a refusal counts if it should
		}
		b.Ops = append(b.Ops, x.pending...)
		b.Groups = append(b.Groups, store.Group{Ops: len(x.pending), Mode: mode})
		b.owners = append(b.owners, x)
	}
	if len(b.Groups) == 0 {
		return
	}
	if cap(b.Out) < len(b.Ops) {
		b.Out = make([]store.Decision, len(b.Ops))
	}
	b.Out = b.Out[:len(b.Ops)]
	b.store.Do(ctx, &b.Batch)
	from := 0
	for i, x := range b.owners {
		from += copy(x.out, b.Out[from:from+b.Groups[i].Ops])
		x.answers(ctx, st, b.Groups[i].Err)
	}
	b.Ops, b.Groups, b.owners = b.Ops[:0], b.Groups[:0], b.owners[:0]
}
