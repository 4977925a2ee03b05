package engine

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

// Refusals receives the refusals by rules with on_repeat. Refused is called concurrently,
// on the path of the request, and must not block.
type Refusals interface {
	// Refused is called for each such rule of a request that has refused a key. key is
	// valid until it returns. enforced is false if the rule only observes. lane is as in
	// [Mark].
	Refused(rule *rules.Rule, key string, lane uint32, enforced bool)
}

// WithRefusals reports refusals by rules with on_repeat to r. Refusals of a banned key are
// not reported, or a ban would extend itself; nor are those for want of the store, and
// dry runs.
func WithRefusals(r Refusals) Option { return func(e *Engine) { e.refusals = r } }

// refused reports the refusals among the results of a request of a kind and cost.
func (e *Engine) refused(results []Result, lane uint32, kind headgate.Kind, cost int64) {
	if kind != headgate.Take || cost <= 0 {
		return
	}
	for i := range results {
		r := &results[i]
		if r.Rule.OnRepeat == nil {
			continue
		}
		switch d := &r.Decision; d.Reason {
		case headgate.Limited, headgate.TooLarge, headgate.Cached:
			if !d.Allowed {
				e.refusals.Refused(r.Rule, r.Key, lane, true)
			}
		case headgate.Shadow:
			e.refusals.Refused(r.Rule, r.Key, lane, false)
		default:
		}
	}
}

// tellRefusals reports the refusals of a verdict, if there are any.
func (e *Engine) tellRefusals(v *Verdict, q *Query) {
	if e.refusals != nil && v.deciding != nil && (!v.Allowed || v.WouldRefuse > 0) {
		e.refused(v.deciding.results, v.deciding.lane, q.Kind, q.Cost)
	}
}

// tellAllRefusals is tellRefusals for the parts of a request.
func (e *Engine) tellAllRefusals(v *MultiVerdict, q *MultiQuery) {
	if e.refusals == nil {
		return
	}
	for i := range q.Parts {
		if part := &v.deciding.verdicts[i]; !part.Allowed || part.WouldRefuse > 0 {
			e.refused(part.results, v.deciding.lane, q.Parts[i].Kind, q.Parts[i].Cost)
		}
	}
}
