package accesslog

import (
	"encoding/json"
	"regexp"
	"time"
)

// wrapping is what a container runtime or a log shipper puts around each line.
type wrapping struct {
	name string // as in "combined in CRI lines"
	open func(line string) (inside string, ok bool)
}

// wrappings are the known ones.
func wrappings() []wrapping {
	return []wrapping{
		{"Docker's JSON lines", key(func(o wrapper) *string { return o.Log })},
		{"Logstash's JSON lines", key(func(o wrapper) *string { return o.Message })},
		{"CRI lines", before(`\d{4}-\d\d-\d\dT\S+ (?:stdout|stderr) [FP] `)},
		{"syslog lines", before(`(?:<\d{1,3}>)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+) \S+ [^\s:\[\]]+(?:\[\d+\])?: `)},
		{"syslog lines", before(`<\d{1,3}>1 \S+ \S+ \S+ \S+ \S+ (?:-|\[[^\]]*\]) (?:\xef\xbb\xbf)?`)},
		{"lines with the name of a container", before(`[\w.-]+ *\| |\[pod/[^\]\s]+\] `)},
		{"lines with a time before", before(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S+ `)},
	}
}

// wrapper has the keys under which shippers put a line.
type wrapper struct {
	Log     *string `json:"log"`
	Message *string `json:"message"`
}

// key returns the open of a wrapping in JSON.
func key(of func(wrapper) *string) func(string) (string, bool) {
	return func(line string) (string, bool) {
		var o wrapper
		if line == "" || line[0] != '{' || json.Unmarshal([]byte(line), &o) != nil || of(o) == nil {
			return "", false
		}
		inside := *of(o)
		for inside != "" && (inside[len(inside)-1] == '\n' || inside[len(inside)-1] == '\r') {
			inside = inside[:len(inside)-1]
		}
		return inside, inside != ""
	}
}

// before returns the open of a wrapping that is a text before the line.
func before(pattern string) func(string) (string, bool) {
	r := regexp.MustCompile(`^(?:` + pattern + `)`)
	return func(line string) (string, bool) {
		at := r.FindStringIndex(line)
		if at == nil {
			return "", false
		}
		return line[at[1]:], true
	}
}

// Unwrap returns a format for lines that have the format f inside a known
// wrapping, or nil.
func Unwrap(f Format, sample []string) Format {
	wrapped, _ := unwrap(f, sample)
	return wrapped
}

// unwrap finds the wrapping of lines, and the format inside it unless f is given,
// that more than half of the lines have. It returns how many have it.
func unwrap(f Format, lines []string) (Format, int) {
	for _, w := range wrappings() {
		var inside []string
		for _, line := range lines {
			if text, ok := w.open(line); ok {
				inside = append(inside, text)
			}
		}
		if len(inside)*2 < len(lines) || len(inside) == 0 {
			continue
		}
		candidates := []Format{f}
		if f == nil {
			var err error
			if candidates, err = detectable(inside[0]); err != nil {
				continue
			}
		}
		if best, n := closest(candidates, inside); n*2 > len(inside) {
			return &wrapped{wrapping: w, inside: best}, n
		}
	}
	return nil, 0
}

// wrapped is a format inside a wrapping.
type wrapped struct {
	wrapping
	inside Format
}

// Name implements Format.
func (w *wrapped) Name() string { return w.inside.Name() + " in " + w.name }

// Parser implements Format.
func (w *wrapped) Parser(zone *time.Location) Parser {
	return &wrappedParser{w.wrapping, w.inside.Parser(zone)}
}

// wrappedParser parses lines of a wrapped format.
type wrappedParser struct {
	wrapping
	inside Parser
}

// Parse implements Parser.
func (p *wrappedParser) Parse(line string, r *Record) error {
	if inside, ok := p.open(line); ok {
		return p.inside.Parse(inside, r)
	}
	return p.inside.Parse(line, r)
}
