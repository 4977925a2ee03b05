package grpclimit

import (
	"context"

	"github.com/headgate/headgate"
)

// places are the leases that a call has taken of limits of headgate.Concurrent.
type places struct {
	gate   *gate
	ctx    context.Context //nolint:containedctx // of the call, whose values the release keeps
	leases []*headgate.Lease
}

// hold keeps the leases among decisions.
func (g *gate) hold(ctx context.Context, ops []headgate.Op, decisions []headgate.Decision) places {
	p := places{gate: g, ctx: ctx}
	for i, d := range decisions {
		if d.Lease != 0 {
			l := g.limiter.LeaseOf(ops[i], d)
			l.Keep()
			p.leases = append(p.leases, l)
		}
	}
	return p
}

// end gives them back. A second end does nothing.
func (p *places) end() {
	for _, l := range p.leases {
		// The caller may be gone; its place is free all the same.
		if _, err := l.Release(context.WithoutCancel(p.ctx)); err != nil && p.gate.onError != nil {
			p.gate.onError(p.ctx, err)
		}
	}
}
