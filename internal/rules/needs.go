package rules

import "slices"

// Needs returns the attributes without which a request does not come under r, each
// once: those of its conditions, its tier, its descriptor, and of its key if it
// skips requests that lack them.
func (r *Rule) Needs() []Attribute {
	var out []Attribute
	need := func(a Attribute) {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	if len(r.match.host.any.all) > 0 {
		need(Attribute{Kind: Host})
	}
	for i := range r.match.values {
		if v := &r.match.values[i]; v.presence == Present || len(v.any.all) > 0 {
			need(v.attribute)
		}
	}
	if r.Tier != "" {
		need(r.TierBy)
	}
	for _, s := range r.steps {
		if s.Attribute != (Attribute{Name: RemoteAddress}) { // which is client_ip too
			need(s.Attribute)
		}
	}
	if r.KeyMissing == KeyMissingSkip {
		for _, a := range r.Key {
			need(a.Attribute)
		}
	}
	return out
}
