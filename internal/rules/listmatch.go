package rules

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/request/spelling"
	"github.com/headgate/headgate/internal/rules/prefixtable"
)

// listed is what the lists of a domain say about a request.
type listed struct {
	hits, misses uint64 // the allow lists that have all, and not all, of its values
	allowed      bool
	denied       bool // by a list that is enforced
}

// onList says whether a list has the values of a request.
type onList uint8

const (
	withoutValue onList = iota // the request does not have the attribute
	onNone                     // the list does not have its value
	onSome                     // the list may have it
	onAll                      // the list has it
)

// settle applies the lists to a request, and reports whether that is all there is to say
// about it: it is allowed or denied.
func (ls *lists) settle(f *facts, m *Matches) bool {
	for _, l := range ls.allow {
		switch l.state(f) {
		case onAll:
			if !m.listed.allowed {
				m.addList(l, f)
			}
			m.listed.hits, m.listed.allowed = m.listed.hits|l.bit, true
		case onNone, onSome:
			m.listed.misses |= l.bit
		case withoutValue:
		}
	}
	return m.listed.allowed || ls.deny != nil && ls.refuse(f, m)
}

// refuse applies the deny lists. One that is enforced is enough; those in shadow mode are
// for requests that reach the rules.
func (ls *lists) refuse(f *facts, m *Matches) bool {
	for _, l := range ls.deny {
		if l.state(f) < onSome {
			continue
		}
		m.addList(l, f)
		if l.Mode == Enforce {
			m.listed.denied = true
			return true
		}
	}
	return false
}

// addList adds the check of a list that has the request.
func (m *Matches) addList(l *List, f *facts) {
	start := len(f.keys)
	if v := f.get(l.Attribute); v.ok {
		f.keys = appendPart(f.keys, v.text)
	} else {
		f.keys = append(f.keys, markMissing...)
	}
	m.Checks = append(m.Checks, Check{
		Rule: l.rule, Key: view(f.keys[start:]), Enforced: l.Kind == DenyList && l.Mode == Enforce,
	})
}

// state says whether l has the values of a request.
func (l *List) state(f *facts) onList {
	if l.Attribute.Kind == ClientIP {
		return l.addressState(f)
	}
	v := f.get(l.Attribute)
	switch _, found := l.Keys.Find(v.text); {
	case !v.ok:
		return withoutValue
	case v.unclear:
		return onSome
	case found:
		return onAll
	}
	return onNone
}

// addressState is state for the client's address. A client that may be one of several, or
// that is not known although there is one, may be on the list.
func (l *List) addressState(f *facts) onList {
	a := f.getAddress()
	switch {
	case !a.IsValid():
		return withoutValue
	case !a.IsUnspecified():
		v4, inside := translated(a)
		switch {
		case l.Prefixes.Has(a):
			return onAll
		case inside && l.Prefixes.Has(v4):
			return onSome
		}
		return onNone
	}
	clients := clientsOf(f.req)
	if slices.ContainsFunc(clients, func(p netip.Prefix) bool {
		_, _, ok := l.Prefixes.Overlapping(p)
		return ok
	}) || clients == nil {
		return onSome
	}
	return onNone
}

// translated returns the IPv4 address inside a NAT64 address, 64:ff9b::/96 (RFC 6052). The
// list that has it denies the client, but does not allow it: without a NAT64, a neighbour
// may have taken that address himself.
func translated(a netip.Addr) (netip.Addr, bool) {
	b := a.As16()
	if a.Is4() || [12]byte(b[:12]) != [12]byte{0, 0x64, 0xff, 0x9b} {
		return a, false
	}
	return netip.AddrFrom4([4]byte(b[12:])), true
}

// translation returns the NAT64 addresses of an IPv4 prefix.
func translation(p netip.Prefix) netip.Prefix {
	b, four := [16]byte{0, 0x64, 0xff, 0x9b}, p.Addr().As4()
	copy(b[12:], four[:])
	return netip.PrefixFrom(netip.AddrFrom16(b), 96+p.Bits())
}

// clientsOf returns the networks of the clients that may have sent a request; nil if any
// client may.
func clientsOf(req Request) (clients []netip.Prefix) {
	disputed, ok := req.(DisputedRequest)
	if !ok {
		return nil
	}
	for _, text := range disputed.Clients() {
		p, err := ParsePrefix(text)
		if err != nil {
			return nil
		}
		clients = append(clients, p)
	}
	return clients
}

// Exempts reports whether an allow list of the domain has every request that r counts under
// key. It is false if the key does not tell: it may lack the attribute of the list, hash it,
// or stand for several values.
func (s *Ruleset) Exempts(r *Rule, key string) bool {
	d := s.domains[r.Domain]
	if d == nil || d.lists == nil || r.flat || r.list != nil {
		return false
	}
	parts, ok := SplitKey(key)
	if !ok || len(parts) != len(r.Key) {
		return false
	}
	for i := range parts {
		if p, a := &parts[i], &r.Key[i]; p.Missing || p.Hashed || p.Digest || a.Segment > 0 || strings.HasPrefix(p.Value, UnclearWord) {
			continue
		}
		for _, l := range d.lists.allow {
			if l.Attribute == r.Key[i].Attribute && l.hasCounted(parts[i].Value) {
				return true
			}
		}
	}
	return false
}

// hasCounted reports whether l has every value that is counted as this one.
func (l *List) hasCounted(value string) bool {
	switch l.Attribute.Kind {
	case ClientIP:
		p, err := ParsePrefix(value)
		if err != nil {
			return false
		}
		_, _, ok := l.Prefixes.Containing(p)
		if p.Addr().Is4() && ok { // also counts what comes through a NAT64, which the list may not have
			_, _, ok = l.Prefixes.Containing(translation(p))
		}
		return ok
	case Path:
		return false // a key may have it in another form
	case Cookie, Header:
		switch formOf(l.Attribute) {
		case spelling.InCookie:
			if strings.Contains(value, " ") { // or a +
				return false
			}
		case spelling.InCredentials: // any scheme
			return false
		case spelling.Plain, spelling.InField, spelling.InParameter:
		}
	case Other, Method, Host, Query, JWT:
	}
	_, found := l.Keys.Find(value)
	return found
}

// JoinLists applies the lists of a domain to a request of several parts, such as the
// descriptors of Envoy, once each part has been matched; at returns part i. The request is
// allowed if an allow list has all values of its attribute, in whichever parts. It is
// denied, if it is not allowed, when any part is. Other parts then have no checks, and the
// result is true.
func (s *Ruleset) JoinLists(domain string, matches []Matches, at func(i int) Request) (settled bool) {
	d := s.domains[domain]
	if d == nil || d.lists == nil {
		return false
	}
	var hits, misses uint64
	for i := range matches {
		hits, misses = hits|matches[i].listed.hits, misses|matches[i].listed.misses
	}
	allowed := hits&^misses != 0
	denied := false
	for i := range matches {
		m := &matches[i]
		if m.listed.allowed && !allowed { // another part has a value that is not on the list
			s.matchAgain(d, at(i), m)
		}
		denied = denied || m.listed.denied
	}
	for i := range matches {
		m := &matches[i]
		if allowed && m.listed.hits&^misses == 0 || denied && !allowed && !m.listed.denied {
			m.Checks = m.Checks[:0]
		}
	}
	return allowed || denied
}

// matchAgain matches a part without the allow lists.
func (s *Ruleset) matchAgain(d *domain, req Request, m *Matches) {
	f := m.factsOf(s, req)
	m.Checks, m.listed = m.Checks[:0], listed{}
	if !d.lists.refuse(&f, m) {
		d.match(&f, m)
	}
	m.forget(&f)
}

// DropRules removes the checks that are not of lists.
func (m *Matches) DropRules() {
	m.Checks = slices.DeleteFunc(m.Checks, func(c Check) bool { return c.Rule.list == nil })
}

// entryOf says which entry of l has a request: file:line, and what it says.
func (l *List) entryOf(f *facts) string {
	if l.Attribute.Kind == ClientIP {
		return l.addressEntry(f)
	}
	if v := f.get(l.Attribute); v.ok && !v.unclear {
		if at, ok := l.KeyAt(v.text); ok {
			return at
		}
	}
	return "a value that servers may read in several ways"
}

// addressEntry is entryOf for the client's address.
func (l *List) addressEntry(f *facts) string {
	told := func(p netip.Prefix, row prefixtable.Row) string {
		return l.place(row.Source, row.Line) + ": " + prefixText(p)
	}
	if a := f.getAddress(); !a.IsUnspecified() {
		if p, row, ok := l.Prefixes.Find(a); ok {
			return told(p, row)
		}
		if v4, inside := translated(a); inside {
			if p, row, ok := l.Prefixes.Find(v4); ok {
				return told(p, row)
			}
		}
	}
	for _, client := range clientsOf(f.req) {
		if p, row, ok := l.Prefixes.Overlapping(client); ok {
			return told(p, row)
		}
	}
	return "a client whose address is not known"
}

// prefixText writes a prefix as rules do: a single address without its length.
func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}
