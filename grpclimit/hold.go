package grpclimit

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/checks"
)

// places are the leases that a call has taken of limits of headgate.Concurrent.
type places struct {
	gate   *gate
	ctx    context.Context //nolint:containedctx // of the call, whose values the release keeps
	leases []*headgate.Lease
}

// hold keeps the leases among decisions.
func (g *gate) hold(ctx context.Context, ops []headgate.Op, decisions []headgate.Decision) places {
	return places{g, ctx, g.limits.Keep(ops, func(i int) *headgate.Decision { return &decisions[i] })}
}

// end gives them back. A second end does nothing.
func (p *places) end() {
	checks.Release(p.ctx, p.leases, func(err error) {
		if p.gate.onError != nil {
			p.gate.onError(p.ctx, err)
		}
	})
}
