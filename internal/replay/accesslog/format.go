// Package accesslog reads the access logs of web servers and proxies: which
// request came when, from whom.
//
// A [Format] is immutable; each goroutine takes a [Parser] of its own from it.
// Whatever a line holds, reading it ends in a [Record] or an error. A Record's
// strings point into the line.
package accesslog

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Format is how the lines of a log are written.
type Format interface {
	// Name says it for people, such as combined.
	Name() string
	// Parser returns a parser for the use of one goroutine. zone is that of
	// times that do not say theirs; nil is UTC.
	Parser(zone *time.Location) Parser
}

// Parser reads lines.
type Parser interface {
	// Parse reads a line, without its end, into r, of which nothing is left
	// that was there before. r's strings may point into the line. The error
	// says what is wrong with the line.
	Parse(line string, r *Record) error
}

// Name implements Format.
func (t *template) Name() string { return t.name }

// Parser implements Format.
func (t *template) Parser(zone *time.Location) Parser {
	return &templateParser{template: t, state: state{times: clock{zone: zone}}}
}

// builtin is a format that is known by its name.
type builtin struct{ name, text string }

// builtins are the formats of text that need no definition, the most specific
// first.
func builtins() []builtin {
	return []builtin{
		{"alb", albFormat},
		{"envoy", `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% ` +
			`%BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" ` +
			`"%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%"`},
		{"traefik", `%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i" %l "%l" "%l" %lms`},
		{"vhost_combined", `%v:%l %h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"`},
		{"combined", `%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"`},
		{"common", `%h %l %u %t "%r" %>s %b`},
	}
}

// albFormat is that of Amazon's Application Load Balancer. The time at the
// beginning is that of the answer, request_creation_time that of the request.
const albFormat = `$type $alb_time $elb $remote_addr $target $x_1 $x_2 $x_3 $status $x_4 $x_5 $x_6 "$request" "$http_user_agent" ` +
	`$x_7 $x_8 $x_9 "$x_10" "$x_11" "$x_12" $x_13 $time_iso8601 "$x_14"`

// Names returns the names of the formats that are known.
func Names() []string {
	var out []string
	for _, b := range builtins() {
		out = append(out, b.name)
	}
	return append(out, jsonKinds()...)
}

func jsonKinds() []string { return []string{"caddy", "traefik-json", "envoy-json", "json"} }

// compileBuiltin makes a format of text by its name.
func compileBuiltin(b builtin) (*template, error) {
	t, err := compileText(b.name, b.text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.name, err)
	}
	// What servers have appended to these formats since does not hurt.
	t.another = b.name == "alb" || b.name == "combined"
	if b.name == "alb" {
		t.logged = logsStart
		for i := range t.steps {
			if s := &t.steps[i]; s.slot == other {
				s.place = place{}
			}
		}
	}
	return t, nil
}

// New makes a format: one of [Names], the text of a log_format, LogFormat or
// Envoy format, or the path of a configuration file of nginx or Apache, with
// the name of the format after a colon if there are several. With a mapping,
// whose keys are attributes and whose values are paths of JSON keys, it may be
// empty or the name of a JSON format.
func New(text string, mapping map[string]string) (Format, error) {
	if slices.Contains(jsonKinds(), text) || text == "" && mapping != nil {
		if text == "" {
			text = "json"
		}
		return newJSON(text, mapping)
	}
	if mapping != nil {
		return nil, fmt.Errorf("a mapping is for JSON, not for %q", text)
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

// maxConfig is the largest configuration file that is read, in bytes.
const maxConfig = 4 << 20

// fromFile reads a format out of a server's configuration.
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
		return nil, fmt.Errorf("%q is neither a format (%s), nor the text of one, nor a file", path, strings.Join(Names(), ", "))
	case !info.Mode().IsRegular() || info.Size() > maxConfig:
		return nil, fmt.Errorf("%s is no configuration of nginx or Apache", file)
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
				return nil, fmt.Errorf("%s: the format %s: %w", file, d.name, err)
			}
			return t, nil
		}
		names = append(names, d.name)
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("%s defines no log format: there is neither log_format nor LogFormat in it", file)
	case name == "":
		return nil, fmt.Errorf("%s defines several log formats: name one, such as %s:%s, of %s", file, file, names[0], strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("%s defines no log format %q: it has %s", file, name, strings.Join(names, ", "))
}

// definitions finds the formats that a configuration defines.
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

// maxSample is how many lines Detect looks at.
const maxSample = 200

// ErrUnknownFormat says that Detect does not know the format.
var ErrUnknownFormat = errors.New("the format is none that is known")

// Detect finds the format of a log by its first lines. The error wraps
// ErrUnknownFormat and names the likeliest format, and what is wrong by it.
func Detect(sample []string) (Format, error) {
	var lines []string
	for _, line := range sample {
		if strings.TrimSpace(line) != "" && len(lines) < maxSample {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%w: there is no line", ErrUnknownFormat)
	}
	candidates, err := detectable(lines[0])
	if err != nil {
		return nil, err
	}
	best, bestCount := Format(nil), 0
	for _, f := range candidates {
		if n := Fits(f, lines); n > bestCount {
			best, bestCount = f, n
		}
	}
	if bestCount*2 >= len(lines) {
		return best, nil
	}
	return nil, unknown(candidates, best, lines)
}

// detectable returns the formats that a first line may be of.
func detectable(first string) ([]Format, error) {
	if strings.HasPrefix(strings.TrimSpace(first), "{") {
		name := "json"
		switch {
		case strings.Contains(first, `"RequestPath"`) || strings.Contains(first, `"DownstreamStatus"`):
			name = "traefik-json"
		case strings.Contains(first, `"request":{`) || strings.Contains(first, `"request": {`):
			name = "caddy"
		case strings.Contains(first, `"start_time"`) && strings.Contains(first, `"response_code"`):
			name = "envoy-json"
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

// Fits counts the lines that are of a format. A connection that sent no
// request leaves a line that is.
func Fits(f Format, lines []string) int {
	n := 0
	p := f.Parser(nil)
	var r Record
	for _, line := range lines {
		if err := p.Parse(line, &r); err == nil || errors.Is(err, errNoRequest) {
			n++
		}
	}
	return n
}

// unknown says which format is the likeliest, and why it is none.
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
			return fmt.Errorf("%w; the likeliest is %s, but line %d: %w", ErrUnknownFormat, best.Name(), i+1, err)
		}
	}
	return ErrUnknownFormat
}
