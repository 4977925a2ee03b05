package proxy

import (
	"context"

	"github.com/headgate/headgate/internal/decide/engine"
)

// hold keeps the places that v has taken under rules that limit what is under
// way, until End of what it returns.
func (p *Proxy) hold(ctx context.Context, v *engine.Verdict) *engine.Hold {
	if !v.HasLeases() {
		return nil // without making anything
	}
	return p.options.Engine.Hold(ctx, v, engine.HoldOptions{Clock: p.options.Clock, Failed: p.leaseFailed})
}

// leaseFailed hears of places that could not be kept or given back.
func (p *Proxy) leaseFailed(err error) { p.options.Logger.Debug("lease not kept", "err", err) }
