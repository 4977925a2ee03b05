package rules

// matcher decides which requests a rule applies to: those for which every condition
// holds.
type matcher struct {
	method       textCondition
	path         pathCondition
	host         textCondition
	addresses    addressSet
	notAddresses addressSet
	values       []valueMatch
}

// Pattern is a glob, a path or a host that text may match.
type Pattern interface {
	match(text string) bool
	// literal returns the only text that matches, if there is only one.
	literal() (string, bool)
	// pieces returns literal texts, all of which any text that matches contains.
	pieces() []string
}

// patternList is a list of patterns, any of which may match. Long lists of
// literals are looked up and not scanned.
type patternList struct {
	all   []Pattern
	exact map[string]struct{}
	rest  []Pattern
}

// exactFrom is from how many literals a look-up beats a scan.
const exactFrom = 8

func newPatternList(all []Pattern) patternList {
	if len(all) < exactFrom {
		return patternList{all: all, rest: all}
	}
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
	presence  Presence
	isTier    bool // it chooses a tier
	textCondition
}

// Presence says whether the attribute must be there at all.
type Presence uint8

// What may be asked of an attribute.
const (
	AnyPresence Presence = iota // does not ask
	Present
	Absent
)

// applies reports whether every condition holds, of a rule that the index has
// given for the request.
func (m *matcher) applies(f *facts) bool {
	switch {
	case !m.method.isEmpty() && !m.method.applies(f.getMethod()):
		return false
	case m.path.isEmpty():
	case m.path.indexed && m.path.excludes(f.paths), !m.path.indexed && !m.path.applies(f):
		return false
	}
	if !m.host.isEmpty() && !m.host.applies(f.getHost()) || !m.addressApplies(f) {
		return false
	}
	for i := range m.values {
		c := &m.values[i]
		if !c.holds(f.get(c.attribute)) {
			return false
		}
	}
	return true
}

// certain is applies for what is an advantage to the client: in doubt it does not hold, and a
// header field counts only if a trusted proxy sent it.
func (m *matcher) certain(f *facts) bool {
	for _, c := range [...]struct {
		asks  *textCondition
		value func() value
	}{{&m.method, f.getMethod}, {&m.host, f.getHost}} {
		if c.asks.isEmpty() {
			continue
		}
		if v := c.value(); v.unclear || !c.asks.applies(v) {
			return false
		}
	}
	if !m.path.isEmpty() && !m.path.certain(f) || !m.addressApplies(f) {
		return false
	}
	if len(m.addresses.prefixes)+len(m.notAddresses.prefixes) > 0 {
		if a := f.getAddress(); !a.IsValid() || a.IsUnspecified() {
			return false
		}
	}
	for i := range m.values {
		c := &m.values[i]
		if v := f.get(c.attribute); v.unclear || !c.holds(v) || c.attribute.Kind == Header && !f.trusted() {
			return false
		}
	}
	return true
}

func (m *matcher) addressApplies(f *facts) bool {
	wanted := len(m.addresses.prefixes) > 0
	if !wanted && len(m.notAddresses.prefixes) == 0 {
		return true
	}
	a := f.getAddress()
	switch {
	case !a.IsValid():
		return !wanted
	case a.IsUnspecified():
		return true
	}
	return !m.notAddresses.contains(a) && (!wanted || m.addresses.contains(a))
}

// holds decides about a value of the attribute. Any condition may hold for an unclear one,
// but it is no tier.
func (c *valueMatch) holds(v value) bool {
	return v.unclear && !c.isTier || (c.presence != Present || v.ok) && (c.presence != Absent || !v.ok) && c.applies(v)
}
