package rules

import (
	"net/netip"

	"github.com/headgate/headgate/internal/request/reading"
	"github.com/headgate/headgate/internal/request/spelling"
)

// value is an attribute's value, and whether the request has it.
type value struct {
	text string
	ok   bool
	// unclear is set if servers may read something else: any condition may hold
	// for it, and it is also counted as missing, so that all such values share one
	// budget.
	unclear bool
}

// fact is what a request says of one attribute. It is asked once.
type fact struct {
	attribute Attribute
	value
	read spelling.Reading // of the text, before it is cleaned

	// Once others have been asked for: what the request may mean as well, and whether
	// that may be anything.
	askedOthers bool
	anything    bool
	others      []string
}

// maxFacts is how many attributes are remembered; of more the last gives way.
const maxFacts = 16

// facts are what is known of the request being matched: each attribute in its normal
// form, worked out on first use.
type facts struct {
	set     *Ruleset // nil in tests
	req     Request
	valued  ValuedRequest // req, if it is one
	known   []fact
	scratch []byte // of what is cleaned
	keys    []byte

	// For descriptors: the values tried instead of the request's first ones, how
	// many were tried, and whether there are more.
	chosen  []chosen
	choices int
	tooMany bool

	path     value        // as it came; paths say what it is
	paths    *reading.Set // of path
	plain    int          // which of its normal forms keys are made of
	several  bool         // the same check may come of several readings
	disputed bool         // servers differ about a value

	address                 netip.Addr
	askedPath, askedAddress bool
}

// chosen is one of several values of an attribute.
type chosen struct {
	attribute Attribute
	value     value
}

// factsOf returns what is known of a request before it is asked, in the memory of m.
func (m *Matches) factsOf(s *Ruleset, req Request) facts {
	if cap(m.scratch)+cap(m.keys) > maxScratch {
		m.scratch, m.keys = nil, nil
	}
	f := facts{set: s, req: req, known: m.known[:0], scratch: m.scratch[:0], keys: m.keys[:0], paths: &m.paths}
	f.valued, _ = req.(ValuedRequest)
	return f
}

// forget keeps the memory of f in m, and nothing of the request in it.
func (m *Matches) forget(f *facts) {
	for i := range f.known {
		clear(f.known[i].others)
		f.known[i] = fact{others: f.known[i].others[:0]}
	}
	m.scratch, m.keys, m.known = f.scratch, f.keys, f.known
}

// fact returns what the request says of an attribute. It is good until the next one
// is asked for.
func (f *facts) fact(a Attribute) *fact {
	for i := range f.known {
		if f.known[i].attribute == a {
			return &f.known[i]
		}
	}
	n := len(f.known)
	switch {
	case n == maxFacts:
		n-- // whose other values may still be needed
		f.known[n].others = nil
	case n == cap(f.known):
		f.known = append(f.known, fact{})
	default:
		f.known = f.known[:n+1]
	}
	known := &f.known[n]
	*known = fact{attribute: a, others: known.others[:0]}
	if known.text, known.ok = f.req.Attribute(a); !known.ok {
		if f.set != nil && f.set.computed != nil {
			known.text, known.ok = f.set.compute(a, f.req)
		}
		return known
	}
	switch a.Kind {
	case Method:
		known.text, f.scratch = cleanMethod(known.text, f.scratch)
	case Host:
		known.text, f.scratch = cleanHost(known.text, f.scratch)
	case Header, Cookie:
		known.read = formOf(a).Read(known.text)
		known.text, known.unclear = known.read.Text, known.read.Clarity == spelling.Unclear
		f.disputed = f.disputed || known.read.Clarity != spelling.Clear
	case Other, Path, ClientIP, Query, JWT:
	}
	return known
}

// formOf returns the form in which the values of a are written.
func formOf(a Attribute) spelling.Form {
	switch a.Kind {
	case Cookie:
		return spelling.InCookie
	case Header:
		return spelling.FormOf(a.Name)
	case Other, Method, Path, Host, ClientIP, Query, JWT:
	}
	return spelling.Plain
}

// get returns any attribute: method, path and host in a normal form, so that a
// key does not tell /login from //login either.
func (f *facts) get(a Attribute) value {
	if a.Kind == Path {
		v := f.getPath()
		if v.ok {
			v.text = f.paths.FoldedPlain(f.plain)
		}
		return v
	}
	for i := range f.chosen {
		if f.chosen[i].attribute == a {
			return f.chosen[i].value
		}
	}
	return f.fact(a).value
}

func (f *facts) getMethod() value { return f.fact(Attribute{Kind: Method}).value }

func (f *facts) getHost() value { return f.fact(Attribute{Kind: Host}).value }

// getPath returns the path as it came. It is for f.paths to say what it is.
func (f *facts) getPath() value {
	if !f.askedPath {
		f.askedPath = true
		f.path.text, f.path.ok = f.req.Attribute(Attribute{Kind: Path})
		if f.paths == nil {
			f.paths = new(reading.Set)
		}
		if f.path.ok {
			f.paths.Read(f.path.text)
		}
	}
	return f.path
}

func (f *facts) getAddress() netip.Addr {
	if !f.askedAddress {
		f.address, f.askedAddress = f.req.ClientIP().Unmap().WithZone(""), true
	}
	return f.address
}

// others returns the values of a besides that of get, if the request may mean
// them as well, and whether it may mean anything.
func (f *facts) others(a Attribute) (texts []string, anything bool) {
	if f.valued == nil && !f.disputed {
		return nil, false
	}
	switch a.Kind {
	case Header, Query, Cookie, JWT:
	case Other, Method, Path, Host, ClientIP:
		return nil, false
	}
	known := f.fact(a)
	if !known.askedOthers {
		known.askedOthers = true
		known.others = known.read.AppendOthers(known.others)
		if f.valued != nil {
			f.askOthers(known)
		}
	}
	return known.others, known.anything
}

// askOthers reads the values that only some servers find. If there are MaxValues,
// there may be more.
func (f *facts) askOthers(known *fact) {
	from, form := len(known.others), formOf(known.attribute)
	known.others = f.valued.AppendOthers(known.others, known.attribute)
	known.anything = len(known.others)-from >= MaxValues
	for i, to := from, len(known.others); i < to; i++ {
		r := form.Read(known.others[i])
		known.others = r.AppendOthers(known.others)
		known.others[i] = r.Text
		known.anything = known.anything || r.Clarity == spelling.Unclear
	}
}
