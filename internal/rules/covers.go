package rules

import (
	"reflect"

	"github.com/headgate/headgate"
)

// Repeats reports whether r does the same as other, of the same signature, to
// every request. Whatever manner leaves must be the same. A percentage is of other
// keys for each rule.
func (r *Rule) Repeats(other *Rule) bool {
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

// Covers reports whether r, which counts the same requests as other, refuses
// whatever other would. It is sure only of limits
// that differ in nothing but their numbers, and of costs that are known before
// the request: what is charged afterwards weighs more on one limit than on
// another. Only a rule that rejects goes before all others: behind a shadow ban
// other limits count on, and a rejection goes before a queue.
func (r *Rule) Covers(other *Rule) bool {
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
