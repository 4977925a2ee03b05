package accesslog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
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
	if !strings.HasPrefix(strings.TrimSpace(line), "{") {
		return errJSON
	}
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	if err := p.value(d, 0); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("truncated")
		}
		return fmt.Errorf("invalid JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("invalid JSON: unexpected text after the JSON object")
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
func (p *jsonParser) value(d *json.Decoder, depth int) error {
	token, err := d.Token()
	switch v := token.(type) {
	case string:
		p.put(v)
	case json.Number:
		p.put(v.String())
	case bool:
		p.put(strconv.FormatBool(v))
	case json.Delim:
		if depth > maxDepth {
			return errors.New("nested too deeply")
		}
		for err == nil && d.More() {
			if v == '{' {
				err = p.member(d, depth+1)
			} else {
				err = p.value(d, depth+1)
			}
		}
		if err == nil {
			_, err = d.Token()
		}
	}
	return err
}

// member parses a key and its value.
func (p *jsonParser) member(d *json.Decoder, depth int) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	length := len(p.path)
	if length > 0 {
		p.path = append(p.path, '.')
	}
	key, _ := token.(string)
	p.path = append(p.path, key...)
	err = p.value(d, depth)
	p.path = p.path[:length]
	return err
}
