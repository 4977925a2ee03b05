package accesslog

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"strconv"
	"strings"
)

// Kind is what sort of thing a Field is.
type Kind uint8

// The kinds.
const (
	Header Kind = iota // a header field of the request; its name is canonical
	Cookie             // a cookie
	Query              // a parameter of the query
	Other              // whatever else was logged under a name
)

// Field is one more thing that a line says of a request.
type Field struct {
	Kind        Kind
	Name, Value string
}

// Record is what a line says of a request. What it does not say is empty.
type Record struct {
	// Time is when the request came, in microseconds since the Unix epoch:
	// where the server logs the end and the duration, their difference.
	Time   int64
	Client string // the peer's address, perhaps with a port
	// ForwardedFor is the X-Forwarded-For that came with the request.
	ForwardedFor string
	Method       string
	// Path and RawQuery are as they were logged: percent-encoded, as a rule.
	Path, RawQuery string
	Host           string
	Status         int
	Fields         []Field // headers, cookies, parameters and whatever else was named
}

// Field returns the first field of that kind and name.
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

// Address reads an address as logs write it: with or without a port, brackets
// and a zone. Anything else is the zero Addr.
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

// What is wrong with lines.
var (
	errNoTime    = errors.New("there is no time")
	errNoRequest = errors.New("there is no request: the connection sent none, or nothing that is HTTP")
	errStatus    = errors.New("the status is not a number of three digits")
	errDuration  = errors.New("the duration is not a number")
	errNumber    = errors.New("the number of bytes is not a number")
)

// slot is where a logged value goes.
type slot uint8

const (
	skip slot = iota
	client
	forwarded
	forwardedLast // the same, whose last element is the peer
	timeAny
	timeLocal // 21/Nov/2026:12:06:46 +0000
	timeISO
	timeEpoch
	timeDecided // the same, of the very decision: X-Headgate-Time
	method
	target   // a path with a query
	uri      // a path that is decoded already
	uriQuery // the same with a query behind it
	hosted   // a host with a target behind it
	query
	host
	request // a request line
	status
	number // of bytes: not used, but a sign that the format fits
	seconds
	millis
	micros
	span // a number of seconds, or with a unit

	// These are in the order of the kinds.

	header
	cookie
	argument
	other
)

// setRequest reads a request line.
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

// setTarget reads a request target in any of its forms (RFC 9112, section 3.2).
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

// place is a slot, and the name of what goes there.
type place struct {
	slot slot
	name string
	rank int // of several for the same thing the highest counts
}

// namePlace returns the place with its name as requests know it.
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

// state is a record under way.
type state struct {
	*Record
	times clock
	ended int64 // how long the request took, if Time is its end, in microseconds
	timed bool
	asked bool // for something
}

func (s *state) begin(r *Record) {
	*r = Record{Fields: r.Fields[:0]}
	s.Record, s.ended, s.timed, s.asked = r, 0, false, false
}

// end checks that the record has what it must have.
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

// whenLogged says of which moment the time in the log is.
type whenLogged bool

const (
	logsStart whenLogged = false
	logsEnd   whenLogged = true
)

// set puts a value where it belongs.
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
		s.Client = value
	case forwarded:
		s.ForwardedFor = value
	case forwardedLast:
		s.ForwardedFor, s.Client = value, strings.TrimSpace(value[strings.LastIndexByte(value, ',')+1:])
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
	case query:
		s.RawQuery = strings.TrimPrefix(value, "?")
	case header, cookie, argument, other:
		s.Fields = append(s.Fields, Field{Kind(p.slot - header), p.name, value})
	default:
		return s.setAsked(p, value)
	}
	return nil
}

// setAsked puts a value that is what was asked for.
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
		return fmt.Errorf("slot %d has no meaning", p.slot)
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
