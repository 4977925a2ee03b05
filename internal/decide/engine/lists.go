package engine

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// joinLists applies the lists of the domain to all parts together, and reports whether
// they allow or deny the request.
func (d *deciding) joinLists(rs *rules.Ruleset) (settled bool) {
	return d.known && rs.HasLists(d.query.Domain) &&
		rs.JoinLists(d.query.Domain, d.matches[:len(d.Parts)], func(i int) rules.Request { return d.Parts[i].Request })
}

// settleLists answers the results of lists. No other limit has a result if the request is
// allowed or denied by one, so the store is not called. A request that is allowed cannot be
// banned either, since bans are of the keys of rules.
func (d *deciding) settleLists() {
	for i := range d.results {
		r := &d.results[i]
		l := r.Rule.List()
		switch {
		case l == nil:
			continue
		case l.Kind == rules.AllowList:
			r.Decision = store.Decision{Allowed: true, Reason: headgate.ReasonNoLimit}
		case r.Enforced:
			r.Decision, d.allowed = listRefusal(), false
		default:
			r.Decision = listRefusal()
			d.shadow(r)
		}
		if d.explains != nil {
			d.explains.listed(i, r)
		}
	}
}

// listRefusal is the decision about a request on a deny list.
func listRefusal() store.Decision {
	return store.Decision{Reason: store.ReasonBanned, RetryAfter: headgate.Never}
}
