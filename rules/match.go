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
func (c *textCondition) applies(v value) bool {
	if !v.ok {
		return len(c.any.all) == 0
	}
	return !c.not.match(v.text) && (len(c.any.all) == 0 || c.any.match(v.text))
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

// value is an attribute's value, and whether the request has it.
type value struct {
	text string
	ok   bool
}

// facts are what is known of the request being matched. The normal form of
// method, path and host is worked out once, on first use.
type facts struct {
	req     Request
	scratch []byte

	method, path, host                value
	askedMethod, askedPath, askedHost bool

	address      netip.Addr
	askedAddress bool
}

// ask returns an attribute as the door gives it.
func (f *facts) ask(a Attribute) value {
	text, ok := f.req.Attribute(a)
	return value{text, ok}
}

func (f *facts) getMethod() value {
	if !f.askedMethod {
		f.method, f.askedMethod = f.ask(Attribute{Kind: Method}), true
		f.method.text, f.scratch = cleanMethod(f.method.text, f.scratch)
	}
	return f.method
}

func (f *facts) getPath() value {
	if !f.askedPath {
		f.path, f.askedPath = f.ask(Attribute{Kind: Path}), true
		f.path.text, f.scratch = cleanPath(f.path.text, f.scratch)
	}
	return f.path
}

func (f *facts) getHost() value {
	if !f.askedHost {
		f.host, f.askedHost = f.ask(Attribute{Kind: Host}), true
		f.host.text, f.scratch = cleanHost(f.host.text, f.scratch)
	}
	return f.host
}

func (f *facts) getAddress() netip.Addr {
	if !f.askedAddress {
		f.address, f.askedAddress = f.req.ClientIP().Unmap().WithZone(""), true
	}
	return f.address
}

// get returns any attribute: method, path and host in their normal form, so
// that a key does not tell /login from //login either.
func (f *facts) get(a Attribute) value {
	switch a.Kind {
	case Method:
		return f.getMethod()
	case Path:
		return f.getPath()
	case Host:
		return f.getHost()
	case Other, ClientIP, Header, Query, Cookie, JWT:
	}
	return f.ask(a)
}

// applies reports whether every condition holds.
func (m *matcher) applies(f *facts) bool {
	return (m.method.isEmpty() || m.method.applies(f.getMethod())) &&
		(m.path.isEmpty() || m.path.applies(f.getPath())) &&
		(m.host.isEmpty() || m.host.applies(f.getHost())) &&
		m.addressApplies(f) && m.valuesApply(f)
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
		c := &m.values[i]
		v := f.get(c.attribute)
		if c.presence == present && !v.ok || c.presence == absent && v.ok || !c.applies(v) {
			return false
		}
	}
	return true
}
