// Package accesslog parses the access logs of web servers and proxies.
//
// A [Format] is immutable; each goroutine gets its own [Parser] from it. Parsing a
// line fills a [Record] or returns an error. The strings of a Record point into
// the line.
package accesslog

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Format is the format of the lines of a log.
type Format interface {
	// Name returns a readable name, such as combined.
	Name() string
	// Parser returns a parser for one goroutine. zone is the time zone of times
	// without one; nil is UTC.
	Parser(zone *time.Location) Parser
}

// Parser reads lines.
type Parser interface {
	// Parse parses a line, without its line end, and overwrites r. The strings of
	// r may point into the line. The error says what is wrong with the line.
	Parse(line string, r *Record) error
}

// Name implements Format.
func (t *template) Name() string { return t.name }

// Parser implements Format.
func (t *template) Parser(zone *time.Location) Parser {
	return &templateParser{template: t, state: state{times: clock{zone: zone}}}
}

// builtin is a format known by name.
type builtin struct{ name, text string }

// builtins are the known text formats, the most specific first.
func builtins() []builtin {
	return []builtin{
		{"alb", albFormat},
		{"envoy", `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% ` +
			`%BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" ` +
			`"%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%"`},
		{"traefik", `%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i" %l "%l" "%l" %lms`},
		{"vhost_combined", `%v %h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"`},
		{"combined", `%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"`},
		{"common", `%h %l %u %t "%r" %>s %b`},
	}
}

// albFormat is the format of AWS Application Load Balancers. The first time is
// that of the response, request_creation_time that of the request.
const albFormat = `$type $alb_time $elb $remote_addr $target $x_1 $x_2 $x_3 $status $x_4 $x_5 $x_6 "$request" "$http_user_agent" ` +
	`$x_7 $x_8 $x_9 "$x_10" "$x_11" "$x_12" $x_13 $time_iso8601 "$x_14"`

// Names returns the names of the known formats.
func Names() []string {
	var out []string
	for _, b := range builtins() {
		out = append(out, b.name)
	}
	return append(out, jsonKinds()...)
}

func jsonKinds() []string { return []string{"caddy", "traefik-json", envoyJSON, "json"} }

// compileBuiltin compiles a known text format.
func compileBuiltin(b builtin) (*template, error) {
	t, err := compileText(b.name, b.text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.name, err)
	}
	t.known = true
	switch b.name {
	case "combined":
		t.another = true // newer servers append fields, also to alb
	case "vhost_combined":
		t.steps[0].slot = vhost
	case "traefik":
		t.loosen()
	case "alb":
		t.another, t.logged = true, logsStart
		for i := range t.steps {
			if s := &t.steps[i]; s.slot == other {
				s.place = place{}
			}
		}
	}
	if first := t.steps[0].slot; first == client || first == vhost {
		t.fore = slices.IndexFunc(t.steps, func(s step) bool { return s.slot == timeLocal })
	}
	return t, nil
}

// New returns a format: one of [Names], the text of a log_format, LogFormat or
// Envoy format, or the path of an nginx or Apache configuration file, followed by a
// colon and the name of the format if there are several. With a mapping from
// attributes to paths of JSON keys, text must be empty or the name of a JSON
// format.
func New(text string, mapping map[string]string) (Format, error) {
	if slices.Contains(jsonKinds(), text) || text == "" && mapping != nil {
		if text == "" {
			text = "json"
		}
		return newJSON(text, mapping)
	}
	if mapping != nil {
		return nil, fmt.Errorf("a mapping needs a JSON format, not %q", text)
	}
	for _, b := range builtins() {
		if b.name == text {
			return compileBuiltin(b)
		}
	}
	if !strings.ContainsAny(text, "$%") {
		return fromFile(text)
	}
	return compileText("format", text)
}

// maxConfig limits the size of a configuration file, in bytes.
const maxConfig = 4 << 20

// fromFile reads a format from a server's configuration.
func fromFile(path string) (Format, error) {
	file, name := path, ""
	info, err := os.Stat(file)
	if err != nil {
		if i := strings.LastIndexByte(path, ':'); i > 0 {
			file, name = path[:i], path[i+1:]
			info, err = os.Stat(file)
		}
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%q is not a known format (%s), a format string or a file", path, strings.Join(Names(), ", "))
	case !info.Mode().IsRegular() || info.Size() > maxConfig:
		return nil, fmt.Errorf("%s is not an nginx or Apache configuration file", file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	found := definitions(string(text))
	var names []string
	for _, d := range found {
		if d.name == name || name == "" && len(found) == 1 {
			t, err := compileText(d.name, d.text)
			if err != nil {
				return nil, fmt.Errorf("%s: format %s: %w", file, d.name, err)
			}
			return t, nil
		}
		names = append(names, d.name)
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("%s defines no log format: it has no log_format or LogFormat", file)
	case name == "":
		return nil, fmt.Errorf("%s defines several log formats (%s): choose one, for example %s:%s", file, strings.Join(names, ", "), file, names[0])
	}
	return nil, fmt.Errorf("%s defines no log format %q: it has %s", file, name, strings.Join(names, ", "))
}

// definitions returns the formats that a configuration defines.
func definitions(text string) []builtin {
	text = regexp.MustCompile(`(?m)^\s*#.*$`).ReplaceAllString(text, "")
	var out []builtin
	nginx := regexp.MustCompile(`(?s)\blog_format\s+(\S+)\s+(?:escape=\w+\s+)?((?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\s)+);`)
	quoted := regexp.MustCompile(`(?s)'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"`)
	for _, m := range nginx.FindAllStringSubmatch(text, -1) {
		var joined strings.Builder
		for _, part := range quoted.FindAllStringSubmatch(m[2], -1) {
			joined.WriteString(strings.NewReplacer(`\"`, `"`, `\'`, `'`, `\\`, `\`).Replace(part[1] + part[2]))
		}
		out = append(out, builtin{m[1], joined.String()})
	}
	apache := regexp.MustCompile(`(?m)^\s*LogFormat\s+"((?:[^"\\]|\\.)*)"\s+(\S+)`)
	for _, m := range apache.FindAllStringSubmatch(text, -1) {
		out = append(out, builtin{m[2], m[1]})
	}
	return out
}

// maxSample is how many lines Detect uses.
const maxSample = 200

// envoyJSON is the name of Envoy's JSON lines.
const envoyJSON = "envoy-json"

// ErrUnknownFormat is returned by Detect for an unknown format.
var ErrUnknownFormat = errors.New("unknown log format")

// Detect detects the format of a log from its first lines, also if each line is
// wrapped by a container runtime or a log shipper. The error wraps
// ErrUnknownFormat and names the closest format and why it does not fit.
func Detect(sample []string) (Format, error) {
	var lines []string
	for _, line := range sample {
		if strings.TrimSpace(line) != "" && len(lines) < maxSample {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%w: the log has no lines", ErrUnknownFormat)
	}
	candidates, err := detectable(lines[0])
	if err != nil {
		return nil, err
	}
	best, bestCount := closest(candidates, lines)
	// A line of an access log inside another one is the original.
	if f, n := unwrap(nil, lines); f != nil && n >= bestCount {
		return f, nil
	}
	if bestCount*2 >= len(lines) {
		return best, nil
	}
	return nil, unknown(candidates, best, lines)
}

// closest returns the format that most lines have, and how many.
func closest(candidates []Format, lines []string) (best Format, count int) {
	for _, f := range candidates {
		if n := Fits(f, lines); n > count {
			best, count = f, n
		}
	}
	return best, count
}

// detectable returns the formats that a first line may have.
func detectable(first string) ([]Format, error) {
	if strings.HasPrefix(strings.TrimSpace(first), "{") {
		name := "json"
		switch {
		case strings.Contains(first, `"RequestPath"`) || strings.Contains(first, `"DownstreamStatus"`):
			name = "traefik-json"
		case strings.Contains(first, `"request":{`) || strings.Contains(first, `"request": {`):
			name = "caddy"
		case strings.Contains(first, `"start_time"`) && strings.Contains(first, `"response_code"`):
			name = envoyJSON
		}
		f, err := newJSON(name, nil)
		return []Format{f}, err
	}
	var out []Format
	for _, b := range builtins() {
		t, err := compileBuiltin(b)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// Fits counts the lines that have a format. The line of a connection without a
// request counts too.
func Fits(f Format, lines []string) int {
	n, bare := 0, 0
	p := f.Parser(nil)
	var r Record
	for _, line := range lines {
		if err := p.Parse(line, &r); err == nil || errors.Is(err, errNoRequest) {
			n++
			if isVhost(f) && startsWithAddress(line) {
				bare++
			}
		}
	}
	if bare == n {
		return 0 // perhaps two addresses: of a proxy and of its client
	}
	return n
}

// isVhost reports whether the lines of a format start with a virtual host.
func isVhost(f Format) bool {
	t, ok := f.(*template)
	return ok && t.known && t.steps[0].slot == vhost
}

// startsWithAddress reports whether a line starts with an address without a port.
func startsWithAddress(line string) bool {
	first, _, _ := strings.Cut(line, " ")
	_, err := netip.ParseAddr(first)
	return err == nil
}

// unknown returns an error with the closest format and why it does not fit.
func unknown(candidates []Format, best Format, lines []string) error {
	if best == nil {
		best = candidates[len(candidates)-1]
		if len(candidates) > 1 {
			best = candidates[len(candidates)-2] // combined
		}
	}
	var r Record
	p := best.Parser(nil)
	for i, line := range lines {
		if err := p.Parse(line, &r); err != nil && !errors.Is(err, errNoRequest) {
			return fmt.Errorf("%w: the closest is %s, but line %d: %w", ErrUnknownFormat, best.Name(), i+1, err)
		}
	}
	return ErrUnknownFormat
}
