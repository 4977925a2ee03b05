package engine

import (
	"context"

	"github.com/headgate/headgate"
)

// quotaLeft reports whether a part that rules in quota mode apply to is refused
// by none of them, or if there is no such part.
func (d *deciding) quotaLeft() bool {
	quotas := false
	for i := 0; i < len(d.results); {
		part, has, left := d.results[i].part, false, true
		for ; i < len(d.results) && d.results[i].part == part; i++ {
			if r := &d.results[i]; r.role == quota {
				has, left = true, left && r.Decision.Allowed
			}
		}
		if has && left {
			return true
		}
		quotas = quotas || has
	}
	return !quotas
}

// handBack refuses the request if no part in quota mode has any left, and then
// gives back what the limits that can refuse have taken, each in the store that its
// answer came from. These say what is left after that.
func (d *deciding) handBack(ctx context.Context) {
	if !d.allowed || d.quotaLeft() {
		return
	}
	d.allowed = false
	for _, from := range [...]origin{fromStore, fromFallback} {
		d.pending, d.asked = d.pending[:0], d.asked[:0]
		for i := range d.results {
			r := &d.results[i]
			has := &r.Decision
			if r.step != enforce && r.step != quota || r.origin() != from || has.Granted == 0 || has.ResetAfter <= 0 {
				continue
			}
			d.pending = append(d.pending, headgate.Op{
				Key: r.Key, Scope: r.Rule.Scope, Limit: r.limit(),
				Cost: has.Granted, At: d.at, Duration: has.ResetAfter, Kind: headgate.Refund,
			})
			d.asked = append(d.asked, i)
		}
		d.room()
		if !d.handedBack(ctx, from) {
			continue
		}
		for j, i := range d.asked {
			if has := &d.results[i].Decision; has.Allowed {
				has.Remaining, has.ResetAfter, has.Granted = max(d.out[j].Remaining, 0), d.out[j].ResetAfter, 0
			}
		}
	}
}

func (d *deciding) handedBack(ctx context.Context, from origin) bool {
	if from == fromFallback {
		return d.put(context.WithoutCancel(ctx), d.engine.fallback, headgate.Independent) == nil
	}
	if d.failure == nil {
		if err := d.put(ctx, d.engine.store, headgate.Independent); err != nil {
			d.failure = unavailable(err)
		}
	}
	return d.failure == nil
}
