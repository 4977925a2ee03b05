package engine

import "context"

// Both returns an Observer that tells first of every decision and then second.
// How long decisions take is for first to measure: second is not asked by
// Deciding, and the Mark that it gets has what first said.
func Both(first, second Observer) Observer { return &both{first, second} }

type both struct{ first, second Observer }

// Deciding implements [Observer].
func (b *both) Deciding(at int64, lane uint32) (start int64) { return b.first.Deciding(at, lane) }

// Decided implements [Observer].
func (b *both) Decided(ctx context.Context, m Mark, q Query, v Verdict, err error) {
	b.first.Decided(ctx, m, q, v, err)
	b.second.Decided(ctx, m, q, v, err)
}

// DecidedAll implements [Observer].
func (b *both) DecidedAll(ctx context.Context, m Mark, q MultiQuery, v MultiVerdict, err error) {
	b.first.DecidedAll(ctx, m, q, v, err)
	b.second.DecidedAll(ctx, m, q, v, err)
}
