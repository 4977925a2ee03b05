package accesslog

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
)

// Kind is the kind of a Field.
type Kind uint8

// The kinds.
const (
	Header Kind = iota // a header field of the request; its name is canonical
	Cookie             // a cookie
	Query              // a parameter of the query
	Other              // any other named value
)

// Field is a named value of a line.
type Field struct {
	Kind        Kind
	Name, Value string
}

// Record is a parsed line. Values that the line does not have are empty.
type Record struct {
	// Time is the arrival of the request, in microseconds since the Unix epoch. If
	// the server logs the end and the duration, it is their difference.
	Time   int64
	Client string // the peer's address, perhaps with a port
	// ForwardedFor is the X-Forwarded-For of the request.
	ForwardedFor string
	// OnlyForwarded says that the line has X-Forwarded-For and no peer. Client is
	// then its last element, which the proxy in front has seen.
	OnlyForwarded bool
	Method        string
	// Path and RawQuery are as logged, usually percent-encoded.
	Path, RawQuery string
	Host           string
	Status         int
	Fields         []Field // headers, cookies, query parameters and other named values
}

// Field returns the first field with that kind and name.
func (r *Record) Field(kind Kind, name string) (string, bool) {
	for i := range r.Fields {
		if f := &r.Fields[i]; f.Kind == kind && f.Name == name {
			return f.Value, true
		}
	}
	return "", false
}

// ClientAddr returns the address in Client, unmapped and without a zone, or
// the zero Addr.
func (r *Record) ClientAddr() netip.Addr { return Address(r.Client) }

// Address parses a logged address, with or without a port, brackets and a zone.
// Other texts return the zero Addr.
func Address(text string) netip.Addr {
	if text == "" || len(text) > 64 || text[0] != '[' && (text[0] > 'f' || text[0] < '.') {
		return netip.Addr{}
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return a.Unmap().WithZone("")
	}
	if strings.HasPrefix(text, "[") {
		inside, rest, ok := strings.Cut(text[1:], "]")
		if !ok || rest != "" && rest[0] != ':' {
			return netip.Addr{}
		}
		text = inside
	} else if i := strings.IndexByte(text, ':'); i >= 0 && strings.IndexByte(text[i+1:], ':') < 0 {
		text = text[:i]
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap().WithZone("")
}

// Errors about lines.
var (
	errNoTime    = errors.New("the line has no time")
	errNoRequest = errors.New("the line has no request: the connection sent none, or not HTTP")
	errStatus    = errors.New("the status is not a three-digit number")
	errDuration  = errors.New("the duration is not a number")
	errNumber    = errors.New("the number of bytes is not a number")
	errNoPath    = errors.New("no key has the request, such as request, request_uri, path or url: name it with --map path=KEY")
)

// slot is the meaning of a logged value.
type slot uint8

const (
	skip slot = iota
	client
	forwarded
	forwardedLast // likewise, with the peer as last element
	forwardedOnly // likewise, in a line without the peer
	timeAny
	timeLocal // 21/Nov/2026:12:06:46 +0000
	timeISO
	timeEpoch
	timeDecided // time of the decision: X-Headgate-Time
	method
	target   // a path with a query
	uri      // a decoded path
	uriQuery // likewise, followed by a query
	hosted   // a host followed by a target
	query
	host
	vhost   // a host, perhaps with a port
	request // a request line
	status
	number // of bytes: unused, but shows that the format fits
	seconds
	millis
	micros
	span // a number of seconds, or a number with a unit

	// In the order of the kinds.

	header
	cookie
	argument
	other
)

// setRequest parses a request line.
func (r *Record) setRequest(line string) error {
	method, rest, ok := strings.Cut(line, " ")
	if !ok || !isToken(method) {
		return errNoRequest
	}
	if i := strings.LastIndexByte(rest, ' '); i >= 0 && strings.HasPrefix(rest[i+1:], "HTTP/") {
		rest = rest[:i]
	}
	r.Method = method
	return r.setTarget(rest)
}

// setTarget parses a request target of any form (RFC 9112, section 3.2).
func (r *Record) setTarget(text string) error {
	switch {
	case text == "":
		return errNoRequest
	case text[0] == '/' || text == "*":
	case strings.HasPrefix(text, "http://"), strings.HasPrefix(text, "https://"),
		strings.HasPrefix(text, "ws://"), strings.HasPrefix(text, "wss://"):
		_, text, _ = strings.Cut(text, "://")
		at := strings.IndexAny(text, "/?")
		if at < 0 {
			at = len(text)
		}
		r.Host, text = text[:at], text[at:]
	case r.Method == http.MethodConnect:
		r.Host, r.Path, r.RawQuery = text, "", ""
		return nil
	default:
		return errNoRequest
	}
	r.Path, r.RawQuery, _ = strings.Cut(text, "?")
	if r.Path == "" {
		r.Path = "/"
	}
	return nil
}

// isToken reports whether text may be a method.
func isToken(text string) bool {
	if text == "" || len(text) > 32 {
		return false
	}
	for i := range len(text) {
		if c := text[i]; (c < 'A' || c > 'Z') && c != '-' && c != '_' && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// place is a slot with the name of its value.
type place struct {
	slot slot
	name string
	rank int // the highest of several values for a slot wins
}

// namePlace returns the place with its name in canonical form.
func (p place) canonical() place {
	if p.slot == header {
		p.name = textproto.CanonicalMIMEHeaderKey(p.name)
		if p.name == "X-Forwarded-For" {
			return place{slot: forwarded, rank: p.rank}
		}
		if p.name == "Host" {
			return place{slot: host, rank: p.rank}
		}
	}
	return p
}

// state is a record in progress.
type state struct {
	*Record
	times clock
	ended int64 // duration of the request in microseconds, if Time is its end
	timed bool
	asked bool // has a request
}

func (s *state) begin(r *Record) {
	*r = Record{Fields: r.Fields[:0]}
	s.Record, s.ended, s.timed, s.asked = r, 0, false, false
}

// end checks the required values of the record.
func (s *state) end(atEnd whenLogged) error {
	switch {
	case !s.timed:
		return errNoTime
	case !s.asked:
		return errNoRequest
	}
	if atEnd {
		s.Time -= s.ended
	}
	return nil
}

// whenLogged is the moment of a logged time.
type whenLogged bool

const (
	logsStart whenLogged = false
	logsEnd   whenLogged = true
)

// set sets the value of a place.
func (s *state) set(p *place, value string) error {
	switch p.slot {
	case skip:
	case timeLocal, timeISO, timeEpoch, timeAny, timeDecided:
		at, err := s.times.parse(p.slot, value)
		if err != nil {
			return err
		}
		s.Time, s.timed = at, true
	case client:
		return s.setClient(value)
	case forwarded:
		s.ForwardedFor = value
	case forwardedLast, forwardedOnly:
		s.setForwarded(value)
		s.OnlyForwarded = p.slot == forwardedOnly
	case number:
		if value[0] < '0' || value[0] > '9' {
			return errNumber
		}
	case status:
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil || n > 999 {
			return errStatus
		}
		s.Status = int(n)
	case seconds, millis, micros, span:
		return s.setDuration(p.slot, value)
	case method:
		if !isToken(value) {
			return errNoRequest
		}
		s.Method = value
	case host:
		s.Host = value
	case vhost:
		return s.setVhost(value)
	case query:
		s.RawQuery = strings.TrimPrefix(value, "?")
	case header, cookie, argument, other:
		s.Fields = append(s.Fields, Field{Kind(p.slot - header), p.name, value})
	default:
		return s.setAsked(p, value)
	}
	return nil
}

// setAsked sets a value of the request.
func (s *state) setAsked(p *place, value string) error {
	s.asked = true
	switch p.slot {
	case request:
		return s.setRequest(value)
	case target:
		query := s.RawQuery
		err := s.setTarget(value)
		if s.RawQuery == "" {
			s.RawQuery = query
		}
		return err
	case hosted:
		at := max(strings.IndexByte(value, '/'), 0)
		s.Host = value[:at]
		return s.setTarget(value[at:])
	case uri:
		s.Path = value
	case uriQuery:
		s.Path, s.RawQuery, _ = strings.Cut(value, "?")
	default:
		return fmt.Errorf("unknown slot %d", p.slot)
	}
	return nil
}

func (s *state) setDuration(unit slot, value string) error {
	if unit == span {
		d, err := parseSpan(value)
		s.ended = d
		return err
	}
	scale := 1.0
	switch unit {
	case seconds:
		scale = 1e6
	case millis:
		scale = 1e3
	default:
	}
	n, err := strconv.ParseFloat(value, 64)
	if err != nil || !(n*scale < 1e15) {
		return errDuration
	}
	s.ended = int64(max(n, 0) * scale)
	return nil
}

// setClient sets the peer: an address, a list of addresses, or the name of a host
// (Apache logs it with HostnameLookups). Nothing else can be one.
func (s *state) setClient(value string) error {
	switch {
	case Address(value).IsValid() || isHostName(value):
		s.Client = value
	case strings.IndexByte(value, ',') >= 0 && areAddresses(value):
		s.setForwarded(value)
		s.OnlyForwarded = true
	case strings.HasPrefix(value, "unix:"), strings.HasPrefix(value, "/"): // a local socket
	default:
		return fmt.Errorf("the client %q is neither an address nor a host name", clip.Text(value, 40))
	}
	return nil
}

// setForwarded sets X-Forwarded-For, and the peer to its last element.
func (s *state) setForwarded(list string) {
	s.ForwardedFor, s.Client = list, strings.TrimSpace(list[strings.LastIndexByte(list, ',')+1:])
}

// areAddresses reports whether all elements of a list are addresses.
func areAddresses(list string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); one != "unknown" && !Address(one).IsValid() {
			return false
		}
	}
	return true
}

// setVhost sets the host to that of a virtual host, without its port.
func (s *state) setVhost(value string) error {
	name := value
	if i := strings.LastIndexByte(value, ':'); i >= 0 && isPort(value[i+1:]) {
		name = value[:i]
	}
	if !isHostName(name) && !Address(name).IsValid() {
		return fmt.Errorf("the virtual host %q is not a host name", clip.Text(value, 40))
	}
	s.Host = name
	return nil
}

func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

// isHostName reports whether text may be the name of a host.
func isHostName(text string) bool {
	text = strings.TrimSuffix(text, ".")
	if text == "" || len(text) > 253 {
		return false
	}
	start := 0 // of the label
	for i := range len(text) + 1 {
		switch {
		case i == len(text) || text[i] == '.':
			if i == start || i-start > 63 {
				return false
			}
			if i < len(text) {
				start = i + 1
			}
		case !isLabel(text[i]):
			return false
		}
	}
	return strings.Trim(text[start:], "0123456789") != "" // otherwise an address, or no name
}

// isLabel reports whether a label of a host name may have c.
func isLabel(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}
