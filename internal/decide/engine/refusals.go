package engine

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// Refusals receives the refusals by rules with traits. Refused is called concurrently,
// on the path of the request, and must not block.
type Refusals interface {
	// Refused is called for each such rule of a request that has refused a key. key is
	// valid until it returns. enforced is false if the rule only observes. shard is as in
	// [Decided].
	Refused(rule *rules.Rule, key string, shard uint32, enforced bool)
}

// WithRefusals reports refusals by rules with traits to r. Refusals of a banned key are
// not reported, or a ban would extend itself; nor are those for want of the store, and
// dry runs.
func WithRefusals(r Refusals) Option { return func(e *Engine) { e.refusals = r } }

// reportRefusals reports the refusals among the results.
func (d *deciding) reportRefusals() {
	for i := range d.results {
		r := &d.results[i]
		if len(r.Rule.Traits) == 0 || !d.Parts[r.Part].Takes() {
			continue
		}
		switch answer := &r.Decision; answer.Reason {
		case headgate.ReasonLimited, headgate.ReasonTooLarge, headgate.ReasonCached:
			if !answer.Allowed {
				d.engine.refusals.Refused(r.Rule, r.Key, d.Shard, true)
			}
		case store.ReasonShadow:
			d.engine.refusals.Refused(r.Rule, r.Key, d.Shard, false)
		default:
		}
	}
}
