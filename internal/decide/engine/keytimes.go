package engine

import (
	"context"

	"github.com/headgate/headgate/store"
)

// KeyTimes tells when the key of v.Rule was created and last changed: a peek that decided
// at the time at asks for it before Release. The error is store.ErrNoKeyTimes if the
// store records none, or no rule applied.
func (e *Engine) KeyTimes(ctx context.Context, v *Verdict, at int64) (store.Times, error) {
	results := v.Results()
	for i := range results {
		if r := &results[i]; r.Rule == v.Rule && !r.Rule.Limit.Rule().Unlimited {
			return store.KeyTimes(ctx, e.store, store.Op{Key: r.Key, Scope: r.Rule.StoreScope(), Rule: r.Rule.Limit.Rule(), At: at})
		}
	}
	return store.Times{}, store.ErrNoKeyTimes
}
