package rules

import "net/netip"

// matcher says which requests a rule applies to: those that every one of its
// conditions holds for.
type matcher struct {
	methods      []string
	notMethods   []string
	paths        []pathPattern
	notPaths     []pathPattern
	hosts        []hostPattern
	notHosts     []hostPattern
	addresses    addressSet
	notAddresses addressSet
	values       []valueMatch
}

// valueMatch is a condition on an attribute that is just text.
type valueMatch struct {
	attribute Attribute
	presence  presence
	// any are the globs of which one must match if there are some; none of
	// not may.
	any, not []glob
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

// applies reports whether every condition holds. What a request lacks is none
// of the values asked for, and none of those excluded either.
func (m *matcher) applies(f *facts) bool {
	return m.methodApplies(f) && m.pathApplies(f) && m.hostApplies(f) && m.addressApplies(f) && m.valuesApply(f)
}

func (m *matcher) methodApplies(f *facts) bool {
	if len(m.methods)+len(m.notMethods) == 0 {
		return true
	}
	method, ok := f.getMethod()
	if !ok {
		return len(m.methods) == 0
	}
	for _, no := range m.notMethods {
		if no == method {
			return false
		}
	}
	for _, yes := range m.methods {
		if yes == method {
			return true
		}
	}
	return len(m.methods) == 0
}

func (m *matcher) pathApplies(f *facts) bool {
	if len(m.paths)+len(m.notPaths) == 0 {
		return true
	}
	path, ok := f.getPath()
	if !ok {
		return len(m.paths) == 0
	}
	for i := range m.notPaths {
		if m.notPaths[i].match(path) {
			return false
		}
	}
	for i := range m.paths {
		if m.paths[i].match(path) {
			return true
		}
	}
	return len(m.paths) == 0
}

func (m *matcher) hostApplies(f *facts) bool {
	if len(m.hosts)+len(m.notHosts) == 0 {
		return true
	}
	host, ok := f.getHost()
	if !ok {
		return len(m.hosts) == 0
	}
	for i := range m.notHosts {
		if m.notHosts[i].match(host) {
			return false
		}
	}
	for i := range m.hosts {
		if m.hosts[i].match(host) {
			return true
		}
	}
	return len(m.hosts) == 0
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
		if !v.applies(value, ok) {
			return false
		}
	}
	return true
}

func (v *valueMatch) applies(value string, ok bool) bool {
	if !ok {
		return v.presence != present && len(v.any) == 0
	}
	if v.presence == absent {
		return false
	}
	for i := range v.not {
		if v.not[i].match(value) {
			return false
		}
	}
	for i := range v.any {
		if v.any[i].match(value) {
			return true
		}
	}
	return len(v.any) == 0
}
