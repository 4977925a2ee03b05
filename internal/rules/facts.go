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

	// disputed is set if some servers read another value than text: see
	// appendReadings. It is counted under each.
	disputed bool
	// unclear is set as well if nobody knows all that they read: any condition may
	// hold for it, and it is counted as missing, too, so that all such values share
	// one budget.
	unclear bool
}

// facts are what is known of the request being matched. The normal form of
// method and host and the readings of the path are worked out once, on first
// use.
type facts struct {
	req     Request
	valued  ValuedRequest // req, if it is one
	scratch []byte
	spare   []string // for others

	// Of the descriptor form: what stands in place of the values that the request
	// has, how many such were tried, and whether there are more.
	chosen  []chosen
	choices int
	tooMany bool

	paths    *reading.Set // of path, if there is one
	plain    int          // which of its normal forms keys are made of
	several  bool         // the same check may come of several readings
	disputed bool         // some value is; see value

	method, path, host                value
	askedMethod, askedPath, askedHost bool

	address      netip.Addr
	askedAddress bool
}

// ask returns an attribute as the door gives it, but for what has many spellings
// of one meaning.
func (f *facts) ask(a Attribute) value {
	text, ok := f.req.Attribute(a)
	if !ok {
		return value{text: text}
	}
	v := meant(a, text)
	f.disputed = f.disputed || v.disputed
	return v
}

// mayBeUnclear reports whether a value of a may be, or disputed.
func mayBeUnclear(a Attribute) bool { return a.Kind == Cookie || a.Kind == Header }

// meant returns a value of a in its one form.
func meant(a Attribute, text string) value {
	switch {
	case a.Kind == Cookie:
		clear := spelling.IsClearCookie(text)
		return value{text: spelling.Cookie(text), ok: true, disputed: !clear, unclear: !clear}
	case a.Kind == Header && spelling.IsCredentials(a.Name):
		clarity := spelling.ClarityOfCredentials(text)
		return value{
			text: spelling.Credentials(text), ok: true,
			disputed: clarity != spelling.Clear, unclear: clarity == spelling.Unclear,
		}
	case a.Kind == Header:
		clear := spelling.IsClearField(text)
		return value{text: spelling.Field(text), ok: true, disputed: !clear, unclear: !clear}
	}
	return value{text: text, ok: true}
}

// others returns the values of a besides that of get, if the request may mean
// them as well, and whether one of them is unclear. They are good until the next
// call.
func (f *facts) others(a Attribute) (texts []string, unclear bool) {
	spare := f.spare[:0]
	if f.disputed && mayBeUnclear(a) {
		if text, ok := f.req.Attribute(a); ok && meant(a, text).disputed {
			spare = appendReadings(spare, a, text)
		}
	}
	if f.valued != nil && (a.Kind == Header || a.Kind == Query || a.Kind == Cookie || a.Kind == JWT) {
		from := len(spare)
		spare = f.valued.AppendOthers(spare, a)
		unclear = len(spare)-from >= MaxValues // there are more, which nobody has looked at
		for i, to := from, len(spare); i < to; i++ {
			v := meant(a, spare[i])
			if v.disputed {
				spare, unclear = appendReadings(spare, a, spare[i]), unclear || v.unclear
			}
			spare[i] = v.text
		}
	}
	f.spare = spare
	return spare, unclear
}

// appendReadings appends what servers read in a value of a that is disputed, besides
// what is meant.
func appendReadings(dst []string, a Attribute, text string) []string {
	switch {
	case a.Kind == Cookie:
		return spelling.AppendCookies(dst, text)
	case spelling.IsCredentials(a.Name):
		return spelling.AppendCredentials(dst, text)
	}
	return spelling.AppendFields(dst, text)
}

func (f *facts) getMethod() value {
	if !f.askedMethod {
		f.method, f.askedMethod = f.ask(Attribute{Kind: Method}), true
		f.method.text, f.scratch = cleanMethod(f.method.text, f.scratch)
	}
	return f.method
}

// getPath returns the path as it came. It is for f.paths to say what it is.
func (f *facts) getPath() value {
	if !f.askedPath {
		f.path, f.askedPath = f.ask(Attribute{Kind: Path}), true
		if f.paths == nil {
			f.paths = new(reading.Set)
		}
		if f.path.ok {
			f.paths.Read(f.path.text)
		}
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

// chosen is one of several values of an attribute.
type chosen struct {
	attribute Attribute
	value     value
}

// get returns any attribute: method, path and host in a normal form, so that a
// key does not tell /login from //login either.
func (f *facts) get(a Attribute) value {
	switch a.Kind {
	case Method:
		return f.getMethod()
	case Path:
		v := f.getPath()
		if v.ok {
			v.text = f.paths.FoldedPlain(f.plain)
		}
		return v
	case Host:
		return f.getHost()
	case Other, ClientIP, Header, Query, Cookie, JWT:
	}
	for i := range f.chosen {
		if f.chosen[i].attribute == a {
			return f.chosen[i].value
		}
	}
	return f.ask(a)
}

