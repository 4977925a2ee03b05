package engine

import (
	"context"

	"github.com/headgate/headgate"
)

// KeyTimes tells when the key of v.Rule was created and last changed: a peek that decided
// at the time at asks for it before Release. The error is headgate.ErrNoKeyTimes if the
// store records none, or no rule applied.
func (e *Engine) KeyTimes(ctx context.Context, v *Verdict, at int64) (headgate.KeyTimes, error) {
	timer, ok := e.store.(headgate.KeyTimer)
	results := v.Results()
	for i := range results {
		if r := &results[i]; ok && r.Rule == v.Rule && !r.Rule.Limit.IsUnlimited() {
			return timer.KeyTimes(ctx, headgate.Op{Key: r.Key, Scope: r.Rule.Scope, Limit: r.Rule.Limit, At: at})
		}
	}
	return headgate.KeyTimes{}, headgate.ErrNoKeyTimes
}
