package rules

import (
	"reflect"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
)

// warnRepeated warns of rules that change nothing, as another one counts the
// same requests by the same key, in the same way, and is at least as strict.
func (p *parser) warnRepeated() {
	const most = 64 // of one signature that are compared
	groups := map[string][]parsedRule{}
	for _, q := range p.parsed {
		group := groups[q.signature]
		if len(group) >= most {
			continue
		}
		groups[q.signature] = append(group, q)
		for _, other := range group {
			if p.warnPair(other, q) {
				break
			}
		}
	}
}

// warnPair compares two rules of one signature and reports whether it warned.
func (p *parser) warnPair(first, second parsedRule) bool {
	a, b := first.rule, second.rule
	stricter := "stricter"
	if a.Limit.Equal(b.Limit) {
		stricter = "as strict"
	}
	switch {
	case !a.Limit.Valid() || !b.Limit.Valid():
		return false // its rate is wrong, and what it would be nobody knows
	case a.repeats(b) && p.isReplaced(a) == p.isReplaced(b):
		second.report.Warnf(second.name, "remove one of them", "the rule %s repeats %s (%s): same match, key and limit", clip.Quote(b.Name), clip.Quote(a.Name), a.Position())
	case a.covers(b) && p.answersFor(first, second):
		second.report.Warnf(second.name, "", "the rule %s can never refuse: %s (%s) counts the same and is %s", clip.Quote(b.Name), clip.Quote(a.Name), a.Position(), stricter)
	case b.covers(a) && p.answersFor(second, first):
		first.report.Warnf(first.name, "", "the rule %s can never refuse: %s (%s) counts the same and is %s", clip.Quote(a.Name), clip.Quote(b.Name), b.Position(), stricter)
	default:
		return false
	}
	return true
}

// answersFor reports whether a request that both refuse is answered as a says,
// which rejects it: of two that reject, and for equally long, the first in the
// files is named.
func (p *parser) answersFor(a, b parsedRule) bool {
	on := &b.rule.OnLimit
	return !p.isReplaced(a.rule) && (a.order < b.order || on.Action == ShadowBan || reflect.DeepEqual(a.rule.OnLimit, *on))
}

// isReplaced reports whether another rule takes the place of r, for some requests.
func (p *parser) isReplaced(r *Rule) bool { return p.replaced[limitName{r.Domain, r.LimitName}] }

// repeats reports whether r does the same as other, of the same signature, to
// every request. Whatever manner leaves must be the same. A percentage is of other
// keys for each rule.
func (r *Rule) repeats(other *Rule) bool {
	if !r.Limit.Equal(other.Limit) || r.Mode == Enforce && r.Percent < 100 {
		return false
	}
	return reflect.DeepEqual(r.manner(), other.manner())
}

// manner returns r without its name and its place, without what a signature
// tells, and without what is made of the rest.
func (r *Rule) manner() Rule {
	m := *r
	m.Domain, m.Name, m.Scope, m.LimitName, m.Description = "", "", "", "", ""
	m.Index, m.File, m.Line, m.Column = 0, "", 0, 0
	m.Key, m.KeyMissing, m.Tier, m.TierBy = nil, 0, "", Attribute{}
	m.match, m.byPath, m.steps = matcher{}, false, nil
	m.Limit, m.one, m.digester = headgate.Limit{}, headgate.Limit{}, nil
	return m
}

// covers reports whether r, which counts the same requests as other, refuses
// whatever other would. It is sure only of limits
// that differ in nothing but their numbers, and of costs that are known before
// the request: what is charged afterwards weighs more on one limit than on
// another. Only a rule that rejects goes before all others: behind a shadow ban
// other limits count on, and a rejection goes before a queue.
func (r *Rule) covers(other *Rule) bool {
	switch {
	case r.Mode != Enforce || r.Percent < 100 || r.QuotaMode || r.OnLimit.Action != Reject:
		return false
	case r.ChargeDenied || other.ChargeDenied || !r.costsAs(other) || !r.coversOutage(other):
		return false
	case r.Limit.IsUnlimited() || other.Limit.IsUnlimited():
		return false
	}
	a, b := r.Limit.Rule(), other.Limit.Rule()
	same := a.Algorithm == b.Algorithm && a.Anchor == b.Anchor && a.Calendar == b.Calendar && a.Zone == b.Zone &&
		a.Edge == b.Edge && a.Buckets == b.Buckets && a.Period == b.Period && a.CountDenied == b.CountDenied
	return same && a.Limit <= b.Limit && a.Most() <= b.Most() && a.Algorithm != headgate.LeakyBucket
}

// costsAs reports whether every request costs the same under both rules, which
// know it beforehand.
func (r *Rule) costsAs(other *Rule) bool {
	if r.CostAfter != nil || other.CostAfter != nil {
		return false
	}
	if r.CostFrom == nil || other.CostFrom == nil {
		return r.CostFrom == other.CostFrom && r.Cost == other.Cost
	}
	return *r.CostFrom == *other.CostFrom
}

// coversOutage reports whether r, if its numbers are not larger, refuses what
// other would while the store is away, and in the same way.
func (r *Rule) coversOutage(other *Rule) bool {
	switch other.OnStoreError {
	case StoreErrorAllow:
		return true
	case StoreErrorDeny:
		return r.OnStoreError == StoreErrorDeny
	case StoreErrorLocal:
	}
	return r.OnStoreError == StoreErrorLocal && r.LocalShare <= other.LocalShare
}
