package rules

import "net/netip"

// matcher says which requests a rule applies to: those that every one of its
// conditions holds for.
type matcher struct {
	method       textCondition
	path         textCondition
	host         textCondition
	addresses    addressSet
	notAddresses addressSet
	values       []valueMatch
}

// pattern is a glob, a path or a host: something that texts are as, or not.
type pattern interface {
	match(text string) bool
	// literal returns the only text that matches, if there is only one.
	literal() (string, bool)
}

// patternList is a list of patterns, any of which may match. Long lists of
// literals are looked up and not scanned.
type patternList struct {
	all   []pattern
	exact map[string]struct{}
	rest  []pattern
}

// exactFrom is from how many literals a look-up beats a scan.
const exactFrom = 8

func newPatternList(all []pattern) patternList {
	l := patternList{all: all, exact: map[string]struct{}{}}
	for _, p := range all {
		if text, ok := p.literal(); ok {
			l.exact[text] = struct{}{}
		} else {
			l.rest = append(l.rest, p)
		}
	}
	if len(l.exact) < exactFrom {
		l.exact, l.rest = nil, all
	}
	return l
}

func (l *patternList) match(text string) bool {
	if l.exact != nil {
		if _, ok := l.exact[text]; ok {
			return true
		}
	}
	for _, p := range l.rest {
		if p.match(text) {
			return true
		}
	}
	return false
}

// textCondition asks for any of some patterns, if there are some, and none of
// others.
type textCondition struct{ any, not patternList }

func (c *textCondition) isEmpty() bool { return len(c.any.all)+len(c.not.all) == 0 }

// applies decides about a value. What a request lacks is none of the values
// asked for, and none of those excluded either.
func (c *textCondition) applies(value string, ok bool) bool {
	if !ok {
		return len(c.any.all) == 0
	}
	return !c.not.match(value) && (len(c.any.all) == 0 || c.any.match(value))
}

// valueMatch is a condition on an attribute that is just text.
type valueMatch struct {
	attribute Attribute
	presence  presence
	textCondition
}

// presence says whether the attribute must be there at all.
type presence uint8

const (
	anyPresence presence = iota
	present
	absent
)

// facts are what is known of the request being matched. The normal form of
// method, path and host is worked out once, on first use.
type facts struct {
	req     Request
	scratch []byte

	method, path, host          string
	hasMethod, hasPath, hasHost known
	address                     netip.Addr
	addressKnown                bool
}

// known is whether something has been looked up, and found.
type known uint8

const (
	notAsked known = iota
	found
	missing
)

func (f *facts) getMethod() (string, bool) {
	if f.hasMethod == notAsked {
		v, ok := f.req.Attribute(Attribute{Kind: Method})
		f.method, f.scratch = cleanMethod(v, f.scratch)
		f.hasMethod = knownIf(ok)
	}
	return f.method, f.hasMethod == found
}

func (f *facts) getPath() (string, bool) {
	if f.hasPath == notAsked {
		v, ok := f.req.Attribute(Attribute{Kind: Path})
		f.path, f.scratch = cleanPath(v, f.scratch)
		f.hasPath = knownIf(ok)
	}
	return f.path, f.hasPath == found
}

func (f *facts) getHost() (string, bool) {
	if f.hasHost == notAsked {
		v, ok := f.req.Attribute(Attribute{Kind: Host})
		f.host, f.scratch = cleanHost(v, f.scratch)
		f.hasHost = knownIf(ok)
	}
	return f.host, f.hasHost == found
}

func (f *facts) getAddress() netip.Addr {
	if !f.addressKnown {
		f.address, f.addressKnown = f.req.ClientIP().Unmap().WithZone(""), true
	}
	return f.address
}

// get returns any attribute: method, path and host in their normal form, so
// that a key does not tell /login from //login either.
func (f *facts) get(a Attribute) (string, bool) {
	switch a.Kind {
	case Method:
		return f.getMethod()
	case Path:
		return f.getPath()
	case Host:
		return f.getHost()
	case Entry, ClientIP, Header, Query, Cookie, JWT:
	}
	return f.req.Attribute(a)
}

func knownIf(ok bool) known {
	if ok {
		return found
	}
	return missing
}

// applies reports whether every condition holds.
func (m *matcher) applies(f *facts) bool {
	if !m.method.isEmpty() {
		if method, ok := f.getMethod(); !m.method.applies(method, ok) {
			return false
		}
	}
	if !m.path.isEmpty() {
		if path, ok := f.getPath(); !m.path.applies(path, ok) {
			return false
		}
	}
	if !m.host.isEmpty() {
		if host, ok := f.getHost(); !m.host.applies(host, ok) {
			return false
		}
	}
	return m.addressApplies(f) && m.valuesApply(f)
}

func (m *matcher) addressApplies(f *facts) bool {
	wanted := len(m.addresses.prefixes) > 0
	if !wanted && len(m.notAddresses.prefixes) == 0 {
		return true
	}
	a := f.getAddress()
	if !a.IsValid() {
		return !wanted
	}
	return !m.notAddresses.contains(a) && (!wanted || m.addresses.contains(a))
}

func (m *matcher) valuesApply(f *facts) bool {
	for i := range m.values {
		v := &m.values[i]
		value, ok := f.get(v.attribute)
		if v.presence == present && !ok || v.presence == absent && ok || !v.applies(value, ok) {
			return false
		}
	}
	return true
}
