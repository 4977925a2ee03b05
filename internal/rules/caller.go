package rules

import (
	"slices"
)

// Caller is what the rules of a domain say about the sender of a request.
type Caller struct {
	Known bool // reports whether the domain is known
	// Allowed reports whether the caller is on an allow list, and DeniedBy is the deny
	// list that has it, or nil. No limit counts it then.
	Allowed  bool
	DeniedBy *Rule
	Limits   []Explanation // those that count it; each applies and is enforced
}

// OfCaller returns the limits that count the sender of req by what it is: its address,
// header fields, cookies and claims. It does not matter what req requests: conditions on
// the method, the path and the query do not count, nor does one on the host if req has
// none. The others do, so a limit for another plan is not listed.
//
// Left out are limits that req cannot say the key of: by path, method or query, or by
// something that req lacks. So are limits for all callers together, limits in shadow
// mode, shadow bans, which clients must not learn of, and descriptors.
//
// OfCaller allocates.
func (s *Ruleset) OfCaller(domain string, req Request) (caller Caller) {
	d := s.domains[domain]
	if d == nil {
		return caller
	}
	var m Matches
	f := m.factsOf(s, req)
	caller.Known = true
	if d.lists != nil && d.lists.settle(&f, &m) {
		if caller.Allowed = m.listed.allowed; m.listed.denied {
			caller.DeniedBy = m.Checks[len(m.Checks)-1].Rule
		}
		return caller
	}
	m.Checks = m.Checks[:0] // without those of lists in shadow mode
	d.classify(&f)
	for _, r := range d.rules {
		if r.forCallers() && r.match.appliesToCaller(&f) && r.keyGiven(&f) {
			m.addKeys(r, &f)
		}
	}
	for i := range m.Checks {
		c := &m.Checks[i]
		if c.Enforced {
			caller.Limits = append(caller.Limits, Explanation{Check: c.kept(), Applies: true})
		}
	}
	return caller
}

// DeniedBy returns the deny list that has the sender of req, or nil.
func (s *Ruleset) DeniedBy(domain string, req Request) *Rule {
	d := s.domains[domain]
	if d == nil || d.lists == nil {
		return nil
	}
	var m Matches
	f := m.factsOf(s, req)
	if d.lists.settle(&f, &m) && m.listed.denied && !m.listed.allowed {
		return m.Checks[len(m.Checks)-1].Rule
	}
	return nil
}

// forCallers reports whether callers may be told of r, and r counts each of them.
func (r *Rule) forCallers() bool {
	return len(r.Key) > 0 && r.Mode == Enforce && r.OnLimit.Action != ShadowBan &&
		!slices.ContainsFunc(r.Key, func(a KeyAttribute) bool { return a.Kind.ofTarget() })
}

// ofTarget reports whether an attribute says what is requested, and not by whom.
func (k AttributeKind) ofTarget() bool { return k == Method || k == Path || k == Query }

// keyGiven reports whether the request has every part of r's key.
func (r *Rule) keyGiven(f *facts) bool {
	return !slices.ContainsFunc(r.Key, func(a KeyAttribute) bool { return !f.get(a.Attribute).ok })
}

// appliesToCaller reports whether the conditions hold that ask who sent the request. A
// tier that the target of a request chooses is unknown.
func (m *matcher) appliesToCaller(f *facts) bool {
	if host := f.getHost(); host.ok && !m.host.applies(host) || !m.addressApplies(f) {
		return false
	}
	for i := range m.values {
		c := &m.values[i]
		switch {
		case !c.attribute.Kind.ofTarget():
			if !c.holds(f.get(c.attribute)) {
				return false
			}
		case c.isTier:
			return false
		}
	}
	return true
}
