package accesslog

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/request/spelling"
)

// jsonNames maps the values of JSON objects to slots, by path: the keys from the
// outside in, joined by dots. One map serves all servers, since their names do not
// conflict.
func jsonNames() map[string]place {
	names := map[string]place{}
	// The first path of a line has the highest rank.
	for slot, list := range map[slot]string{
		timeDecided: `upstream_http_x_headgate_time headgate_time x_headgate_time resp_headers.X-Headgate-Time
			downstream_X-Headgate-Time`,
		timeEpoch: "msec",
		timeAny: `StartUTC start_time StartLocal request.start_time time_iso8601 @timestamp timestamp ts time datetime
			date time_local start_utc eventTime event_time`,
		client: `client_ip request.client_ip request.remote_ip remote_ip remote_addr request.remote_addr ClientHost ClientAddr
			downstream_direct_remote_address downstream_remote_address remote_address clientip client_addr ip
			source_ip src_ip c-ip client.ip source.ip httpRequest.remoteIp remote_host client`,
		forwarded: `x_forwarded_for http_x_forwarded_for x-forwarded-for xff forwarded_for`,
		method:    "method request.method request_method RequestMethod verb http_method http.request.method httpRequest.requestMethod",
		target: `request_uri request.uri RequestPath original_path uri url path target request_path url.original url.path
			httpRequest.requestUrl`,
		query: "query_string args",
		// A shipper calls the machine that it runs on host.
		host:    "http_host request.host RequestHost authority :authority vhost http.host url.domain host",
		request: "request request_line",
		status: `status DownstreamStatus response_code status_code http_status code http.response.status_code
			httpRequest.status`,
		span:   "request_time duration",
		header: "user_agent http_user_agent httpRequest.userAgent",
	} {
		for i, name := range strings.Fields(list) {
			p := place{slot: slot, rank: 100 - i}
			if slot == header {
				p.name = "User-Agent"
			}
			names[name] = p
		}
	}
	return names
}

// jsonFormat is the format of lines that are JSON objects.
type jsonFormat struct {
	name   string
	places map[string]place
}

func newJSON(name string, mapping map[string]string) (*jsonFormat, error) {
	f := &jsonFormat{name: name, places: jsonNames()}
	for attribute, path := range mapping {
		p, err := mappedPlace(attribute)
		if err != nil {
			return nil, err
		}
		p.rank = math.MaxInt
		f.places[path] = p.canonical()
	}
	return f, nil
}

// mappedPlace returns the place of an attribute of --map.
func mappedPlace(attribute string) (place, error) {
	slots := map[string]slot{
		"time": timeAny, "client_ip": client, "forwarded_for": forwarded, "method": method, "path": target,
		"query": query, "host": host, "request": request, "status": status, "duration": span,
	}
	if slot, ok := slots[attribute]; ok {
		return place{slot: slot}, nil
	}
	kind, name, ok := strings.Cut(attribute, ":")
	if named, known := map[string]slot{"header": header, "query": argument, "cookie": cookie}[kind]; ok && known && name != "" {
		return place{slot: named, name: name}, nil
	}
	if attribute == "" || ok {
		return place{}, fmt.Errorf("%q is not a request attribute such as client_ip, path, time or header:X-Api-Key", attribute)
	}
	return place{slot: other, name: attribute}, nil
}

// Name implements Format.
func (f *jsonFormat) Name() string { return f.name }

// Parser implements Format.
func (f *jsonFormat) Parser(zone *time.Location) Parser {
	return &jsonParser{jsonFormat: f, state: state{times: clock{zone: zone}}}
}

// jsonParser parses lines of a jsonFormat.
type jsonParser struct {
	*jsonFormat
	state state
	path  []byte
	found [other + 1]found
	dated string // the path of the time
}

// found is the value of a slot so far.
type found struct {
	value string
	rank  int
}

// durationRank is the rank of the key duration.
const durationRank = 99

// maxDepth limits the nesting of objects and arrays.
const maxDepth = 32

var errJSON = errors.New("the line is not a JSON object")

// Parse implements Parser.
func (p *jsonParser) Parse(line string, r *Record) error {
	p.state.begin(r)
	p.path, p.found, p.dated = p.path[:0], [other + 1]found{}, ""
	s := scanner{text: line}
	s.space()
	if s.peek() != '{' {
		return errJSON
	}
	if err := p.value(&s, -1); err != nil {
		return err
	}
	s.space()
	if s.at != len(s.text) {
		return fmt.Errorf("character %d: unexpected text after the JSON object", s.at+1)
	}
	// The method before the target, which differs for CONNECT, and the query after
	// it.
	for _, slot := range []slot{
		timeAny, timeEpoch, timeDecided, client, forwarded, method, request, target, query, host, status, span,
	} {
		f := &p.found[slot]
		if f.rank == 0 || f.value == "" || f.value == "-" {
			continue
		}
		if slot == span && f.rank == durationRank && p.dated != "ts" {
			continue // only Caddy's is known to be in seconds
		}
		if slot == target && p.found[request].rank > 0 && p.state.asked {
			continue
		}
		as := slot
		if slot == request && f.value[0] == '/' {
			as = target // Logstash's request is the target alone
		}
		if err := p.state.set(&place{slot: as}, f.value); err != nil {
			return err
		}
	}
	if p.found[client].rank == 0 && p.state.ForwardedFor != "" {
		p.state.setForwarded(p.state.ForwardedFor)
		p.state.OnlyForwarded = p.name != envoyJSON // Envoy appends the peer before logging it
	}
	if !p.state.asked && p.found[request].rank == 0 {
		return p.lacking()
	}
	// Caddy's ts and nginx's time are the end of the request.
	atEnd := logsEnd
	if strings.HasPrefix(strings.ToLower(p.dated), "start") || p.found[timeDecided].rank > 0 {
		atEnd = logsStart
	}
	return p.state.end(atEnd)
}

// lacking returns the error of a line without a request.
func (p *jsonParser) lacking() error {
	switch {
	case !p.state.timed:
		return errNoTime
	case p.found[target].rank > 0:
		return errNoRequest
	}
	return errNoPath
}

// put records the value at the current path.
func (p *jsonParser) put(value string) {
	place, ok := p.places[string(p.path)]
	if !ok {
		for _, prefix := range [...]string{"request.headers.", "request_", "http_"} { // of headers
			if name, is := strings.CutPrefix(string(p.path), prefix); is && name != "" {
				switch {
				case prefix == "http_":
					name = strings.ReplaceAll(name, "_", "-")
				case prefix == "request_" && (name[0] < 'A' || name[0] > 'Z'):
					continue // Traefik's header names are canonical; this is not one
				}
				p.field(header, name, value)
				return
			}
		}
		p.other(value)
		return
	}
	if place.slot >= header {
		p.field(place.slot, place.name, value)
		return
	}
	if f := &p.found[place.slot]; place.rank > f.rank {
		if place.slot == client && place.rank < math.MaxInt && !isClient(value) {
			p.other(value) // such as the client's software
			return
		}
		*f = found{value, place.rank}
		if place.slot == timeAny {
			p.dated = string(p.path)
		}
	}
}

// other adds a field named by the current path.
func (p *jsonParser) other(value string) {
	if value != "" && value != "-" {
		p.state.Fields = append(p.state.Fields, Field{Other, string(p.path), value})
	}
}

// isClient reports whether a value is an address or a list of them.
func isClient(value string) bool {
	return Address(value).IsValid() || strings.IndexByte(value, ',') >= 0 && areAddresses(value)
}

// field adds a field; of several headers with the same name it keeps the first.
func (p *jsonParser) field(slot slot, name, value string) {
	c := place{slot: slot, name: name}.canonical()
	switch c.slot { //nolint:exhaustive // the rest are plain fields
	case forwarded:
		if f := &p.found[forwarded]; f.rank == 0 {
			*f = found{value, 1}
		}
		return
	case host:
		return
	}
	kind := Kind(slot - header)
	if _, twice := p.state.Field(kind, c.name); !twice && value != "-" && value != "" {
		p.state.Fields = append(p.state.Fields, Field{kind, c.name, value})
	}
}

// value parses any value. The elements of an array have the array's path.
func (p *jsonParser) value(s *scanner, depth int) error {
	s.space()
	switch s.peek() {
	case '{':
		return p.list(s, depth+1, '}', func() error { return p.member(s, depth+1) })
	case '[':
		return p.list(s, depth+1, ']', func() error { return p.value(s, depth+1) })
	case '"':
		text, err := s.string()
		if err == nil {
			p.put(text)
		}
		return err
	}
	word, err := s.word()
	if err == nil && word != "null" {
		p.put(word)
	}
	return err
}

// list parses an object or array up to its closing bracket, calling one for each
// element.
func (p *jsonParser) list(s *scanner, depth int, closing byte, one func() error) error {
	if depth > maxDepth {
		return errors.New("invalid JSON: nested too deeply")
	}
	s.at++
	s.space()
	if s.peek() == closing {
		s.at++
		return nil
	}
	for {
		if err := one(); err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case ',':
			s.at++
		case closing:
			s.at++
			return nil
		default:
			return s.expected("a comma or " + string(closing))
		}
	}
}

// member parses a key and its value.
func (p *jsonParser) member(s *scanner, depth int) error {
	s.space()
	key, err := s.string()
	if err != nil {
		return err
	}
	s.space()
	if s.peek() != ':' {
		return s.expected("a colon")
	}
	s.at++
	length := len(p.path)
	if length > 0 {
		p.path = append(p.path, '.')
	}
	p.path = append(p.path, key...)
	err = p.value(s, depth)
	p.path = p.path[:length]
	return err
}

// scanner reads the tokens of JSON (RFC 8259).
type scanner struct {
	text string
	at   int
}

func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scanner) space() {
	for s.at < len(s.text) && strings.IndexByte(" \t\r\n", s.text[s.at]) >= 0 {
		s.at++
	}
}

func (s *scanner) expected(what string) error {
	if s.at >= len(s.text) {
		return errors.New("invalid JSON: truncated")
	}
	return fmt.Errorf("invalid JSON at character %d: expected %s, found %q", s.at+1, what, clip.Text(s.text[s.at:], 10))
}

// string parses a string and decodes its escapes.
func (s *scanner) string() (string, error) {
	if s.peek() != '"' {
		return "", s.expected("a quotation mark")
	}
	start := s.at + 1
	for from := start; ; {
		i := strings.IndexByte(s.text[from:], '"')
		if i < 0 {
			s.at = len(s.text)
			return "", s.expected("")
		}
		from += i
		if spelling.Quoted(s.text[start:], from-start) {
			from++
			continue
		}
		s.at = from + 1
		return s.checked(s.text[start:from])
	}
}

// checked refuses invalid strings, as encoding/json does.
func (s *scanner) checked(text string) (string, error) {
	plain := true
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c < ' ':
			return "", errors.New("invalid JSON: control character in a string")
		case c == '\\':
			plain = false
			if !strings.ContainsRune(`"\/bfnrtu`, rune(text[i+1])) { // a string never ends in a backslash
				return "", fmt.Errorf("invalid JSON: unknown escape %q", clip.Text(text[i:], 2))
			}
			if text[i+1] == 'u' {
				if _, ok := hex(text[i+2:], 4); !ok {
					return "", fmt.Errorf("invalid JSON: unknown escape %q", clip.Text(text[i:], 6))
				}
			}
			i++
		}
	}
	if plain {
		return text, nil
	}
	return unescape(text), nil
}

// word parses a number, true, false or null.
func (s *scanner) word() (string, error) {
	start := s.at
	for s.at < len(s.text) && strings.IndexByte(" \t\r\n,:]}[{\"", s.text[s.at]) < 0 {
		s.at++
	}
	word := s.text[start:s.at]
	if !json.Valid([]byte(word)) {
		s.at = start
		return "", s.expected("a value")
	}
	return word, nil
}
