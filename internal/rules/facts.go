package rules

import (
	"net/netip"
	"strings"

	"github.com/headgate/headgate/internal/request/reading"
	"github.com/headgate/headgate/internal/request/spelling"
)

// value is an attribute's value, and whether the request has it.
type value struct {
	text string
	ok   bool
	// unclear is set if servers may read something else. Any condition may hold for
	// it, and text is what it is counted by: see facts.unclear.
	unclear bool
}

// fact is what a request says of one attribute. It is asked once.
type fact struct {
	attribute Attribute
	value
}

// maxFacts is how many attributes are remembered; of more the last gives way.
const maxFacts = 16

// facts are what is known of the request being matched: each attribute in its normal
// form, worked out on first use.
type facts struct {
	set     *Ruleset // nil in tests
	req     Request
	reads   UnclearRequest // req, if it is one
	known   []fact
	scratch []byte // of what is cleaned
	keys    []byte

	path    value        // as it came; paths say what it is
	paths   *reading.Set // of path
	reading int          // which of its readings keys are made of
	several bool         // the same check may come of several readings
	class   Class        // in a domain with priorities

	address                 netip.Addr
	askedPath, askedAddress bool
}

// factsOf returns what is known of a request before it is asked, in the memory of m.
func (m *Matches) factsOf(s *Ruleset, req Request) facts {
	if cap(m.scratch)+cap(m.keys) > maxScratch {
		m.scratch, m.keys = nil, nil
	}
	f := facts{set: s, req: req, known: m.known[:0], scratch: m.scratch[:0], keys: m.keys[:0], paths: &m.paths}
	f.reads, _ = req.(UnclearRequest)
	return f
}

// forget keeps the memory of f in m, and nothing of the request in it.
func (m *Matches) forget(f *facts) {
	clear(f.known)
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
		n--
	case n == cap(f.known):
		f.known = append(f.known, fact{})
	default:
		f.known = f.known[:n+1]
	}
	known := &f.known[n]
	*known = fact{attribute: a}
	if f.reads != nil {
		known.text, known.ok, known.unclear = f.reads.Read(a)
	} else {
		known.text, known.ok = f.req.Attribute(a)
	}
	if !known.ok && !known.unclear {
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
	case Header, Query, Cookie, JWT:
		text, isClear := formOf(a).Read(known.text)
		if known.text = text; known.unclear || !isClear || strings.HasPrefix(text, UnclearWord) {
			known.value = f.unclear()
		}
	case Other, Path, ClientIP:
	}
	return known
}

// UnclearWord begins what stands for all unclear values of a client in a key, before its
// address. A value that begins with it is unclear too, so nobody else can count there.
const UnclearWord = "unclear:"

// unclear returns what stands for an unclear value.
func (f *facts) unclear() value {
	address, _ := f.req.Attribute(Attribute{Kind: ClientIP})
	return value{text: UnclearWord + address, ok: true, unclear: true}
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
			v.text = f.paths.FoldedPlain(f.paths.PlainOf(f.reading))
		}
		return v
	}
	return f.fact(a).value
}

// part returns an attribute of the key of r.
func (f *facts) part(r *Rule, a *KeyAttribute) value {
	v := f.get(a.Attribute)
	if a.Segment > 0 && v.ok {
		return r.match.path.segment(f.paths, f.reading, a.Segment)
	}
	return v
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
