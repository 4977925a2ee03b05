package proxy

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/engine"
	"github.com/headgate/headgate/rules"
)

// settleCosts charges what the upstream has said that the request took, in
// place of the estimate. Trailers are there only when the response is done,
// which is now.
func (p *Proxy) settleCosts(ctx context.Context, x *exchange, v *engine.Verdict) {
	res, gone := x.answer, ctx.Err() != nil
	failed := res == nil && !gone || res != nil && res.StatusCode >= http.StatusInternalServerError
	costOf := func(c *rules.CostAfter) (int64, bool) {
		if failed && c.CancelErrors {
			return 0, true
		}
		if res == nil {
			return 0, false
		}
		text := res.Header.Get(c.Header)
		if text == "" {
			text = res.Trailer.Get(c.Header)
		}
		if text == "" {
			return 0, false
		}
		cost, ok := c.Cost(text)
		if !ok {
			p.options.Logger.DebugContext(ctx, "the upstream's cost is no whole number", "header", c.Header, "value", text)
		}
		return cost, ok
	}
	// The client may be gone; what it has used is used.
	if err := p.options.Engine.SettleCosts(context.WithoutCancel(ctx), v, p.options.Clock().UnixMicro(), costOf); err != nil {
		p.options.Logger.DebugContext(ctx, "cost not settled, the estimate stays", "err", err)
	}
}
