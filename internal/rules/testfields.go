package rules

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// testClock is where a trace has come to.
type testClock struct {
	start, now time.Time
	zone       *time.Location
	given      bool // the start, by the file
}

// parse reads a time: since the start, since the step before, of the day, or
// with its date.
func (c *testClock) parse(n *node) (time.Time, error) {
	text := n.text
	switch {
	case n.kind != textKind:
		return time.Time{}, errors.New("is not a time")
	case strings.HasPrefix(text, "+"):
		d, err := parseTestDuration(text[1:])
		return c.now.Add(d), err
	}
	if d, err := parseTestDuration(text); err == nil {
		return c.start.Add(d), nil
	}
	if at, err := parseDate(text, c.zone); err == nil {
		return at, nil
	}
	for _, layout := range []string{"15:04:05.999999", "15:04"} {
		if at, err := time.Parse(layout, text); err == nil {
			y, m, d := c.now.In(c.zone).Date()
			return time.Date(y, m, d, at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), c.zone), nil
		}
	}
	return time.Time{}, errors.New(quote(text) + " is not a time")
}

// parseDate reads a date with a time, or alone for its midnight.
func parseDate(text string, zone *time.Location) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return inYears(at)
	}
	for _, layout := range []string{"2006-01-02T15:04:05.999999", time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, zone); err == nil {
			return inYears(at)
		}
	}
	return time.Time{}, errors.New("not a date")
}

// inYears refuses times that stores do not take.
func inYears(at time.Time) (time.Time, error) {
	if y := at.Year(); y < 1971 || y > lastYear {
		return time.Time{}, errors.New("out of range")
	}
	return at, nil
}

// lastYear is the last in which a test may be: what stores take, and some.
const lastYear = 2100

// maxTestTime is the longest duration in a test.
const maxTestTime = 20 * 365 * day

// parseTestDuration reads what Go reads, such as 11.25s, and what rates read,
// such as 7d.
func parseTestDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		d, _, err = parsePeriod(text)
	}
	if err != nil || d < 0 || d > maxTestTime || d%time.Microsecond != 0 || strings.HasPrefix(text, "+") {
		return 0, errors.New(quote(text) + " is not a duration")
	}
	return d, nil
}

func (p *testParser) duration(n *node, key string) (time.Duration, bool) {
	d, err := parseTestDuration(n.text)
	if err != nil || n.kind != textKind {
		p.errorf(n, "write it with a unit, such as 11.25s", "%q must be a duration of whole microseconds, not %s", key, quote(n.text))
		return 0, false
	}
	return d, true
}

// readRequest reads request, descriptor or descriptors, if there are any.
func (p *testParser) readRequest(f fields, at *node, s *TestStep) {
	given := 0
	if n := f.get("request"); n != nil {
		given++
		s.Attributes, s.Descriptors = p.request(n), nil
	}
	if n := f.get("descriptor"); n != nil {
		given++
		s.Attributes, s.Descriptors = nil, [][]Entry{p.entries(n)}
	}
	if n := f.get("descriptors"); n != nil {
		given++
		s.Attributes, s.Descriptors = nil, [][]Entry{}
		if n.kind != listKind || len(n.items) == 0 {
			p.errorf(n, "", "\"descriptors\" must be a list of descriptors")
		}
		for _, item := range n.items {
			s.Descriptors = append(s.Descriptors, p.entries(item))
		}
	}
	if given > 1 {
		p.errorf(at, "", "give one of \"request\", \"descriptor\" and \"descriptors\"")
	}
}

// request reads the attributes of a request: by their names, or in sections as
// under match.
func (p *testParser) request(n *node) []TestAttribute {
	out := []TestAttribute{}
	if n.kind != mapKind {
		p.errorf(n, "for example {method: POST, path: /login}", "\"request\" must be a mapping of attributes to values, not %s", n.kind)
		return out
	}
	for _, field := range n.pairs {
		section := false
		for key, kind := range valueSections() {
			if field.key.text != key || field.value.kind != mapKind {
				continue
			}
			section = true
			for _, inner := range field.value.pairs {
				a, err := p.valueAttribute(kind, inner.key.text)
				out = p.addAttribute(out, inner, a, err)
			}
		}
		if !section {
			a, err := ParseAttribute(field.key.text)
			out = p.addAttribute(out, field, a, err)
		}
	}
	return out
}

// addAttribute adds one attribute, if it is right.
func (p *testParser) addAttribute(out []TestAttribute, field pair, a Attribute, err error) []TestAttribute {
	text, ok := p.plainText(field.value, field.key.text)
	switch {
	case err != nil:
		p.errorf(field.key, "", "%v", err)
		return out
	case !ok:
		return out
	case slices.ContainsFunc(out, func(other TestAttribute) bool { return other.Attribute == a }):
		p.errorf(field.key, "", "%s is given twice", quote(a.String()))
		return out
	}
	if a.Kind == Other {
		known := append([]string{"method", "path", "host", "client_ip"}, "headers", "query", "cookies", "jwt", "attributes")
		meant := didYouMean(a.Name, known)
		if right, _ := rightWord(a.Name); meant == "" && right != "" && !strings.HasPrefix(right, "jwt:") {
			meant = ", did you mean \"" + right + "\"?"
		}
		if meant != "" {
			p.warnf(field.key, "", "the attribute %s is one of the caller's own%s", quote(a.Name), meant)
		}
	}
	if a.Kind == Path && text != "" && text[0] != '/' && text != "*" {
		p.errorf(field.value, "", "the path %s must begin with /", quote(text))
		return out
	}
	if a.Kind == ClientIP {
		if address, err := netip.ParseAddr(text); err != nil || address.Zone() != "" {
			p.errorf(field.value, "", "%s is not an IP address", quote(text))
			return out
		}
	}
	return append(out, TestAttribute{a, text})
}

// plainText reads a scalar as it is written.
func (p *testParser) plainText(n *node, key string) (string, bool) {
	switch n.kind {
	case textKind, numberKind, boolKind:
		return n.text, true
	case nullKind, listKind, mapKind:
	}
	p.errorf(n, "write \"\" for an empty value", "%q must be text, not %s", key, n.kind)
	return "", false
}

// entries reads a descriptor: {key: value, …} in this order, or the text
// key=value,key=value.
func (p *testParser) entries(n *node) []Entry {
	var out []Entry
	switch n.kind {
	case textKind:
		var err error
		if out, err = ParseDescriptor(n.text); err != nil {
			p.errorf(n, "", "%v", err)
		}
	case mapKind:
		for _, field := range n.pairs {
			if field.key.text == "" {
				p.errorf(field.key, "", "the key is empty")
			}
			text, _ := p.plainText(field.value, field.key.text)
			out = append(out, Entry{field.key.text, text})
		}
		if len(out) == 0 {
			p.errorf(n, "", "the descriptor is empty")
		}
	case nullKind, numberKind, boolKind, listKind:
		p.errorf(n, "write {key: value}, or \"key=value,key=value\"", "a descriptor must be a mapping, not %s", n.kind)
	}
	return out
}

// readExpect reads expect: a verdict, or a list of them.
func (p *testParser) readExpect(f fields, at *node, what string, s *TestStep) {
	n := f.get("expect")
	if n == nil {
		if !hasKey(at, "expect") {
			p.errorf(at, "expect allowed, refused or any", "\"expect\" is missing in %s", what)
		}
		return
	}
	items := []*node{n}
	if n.kind == listKind {
		items = n.items
		if len(items) == 0 {
			p.errorf(n, "", "the list of \"expect\" is empty")
		}
		if len(items) > maxRepeat {
			p.errorf(n, "", "\"expect\" lists more than %d verdicts", maxRepeat)
			return
		}
	}
	for _, item := range items {
		s.Expect = append(s.Expect, p.expectation(item))
	}
}

// expectation reads allowed, refused, any, or a mapping.
func (p *testParser) expectation(n *node) Expectation {
	e := Expectation{Line: n.line, Column: n.column}
	if n.kind != mapKind {
		word, ok := p.choice(n, "expect", "allowed", "refused", "any")
		if allowed := word == "allowed"; ok && word != "any" {
			e.Allowed = &allowed
		}
		return e
	}
	f := p.fields(n, "expect", expectKeys())
	if len(n.pairs) == 0 {
		p.errorf(n, "write any if every verdict is right", "\"expect\" is empty")
	}
	if n := f.get("allowed"); n != nil {
		if yes, ok := p.boolean(n, "allowed"); ok {
			e.Allowed = &yes
		}
	}
	if n := f.get("rule"); n != nil {
		if text, ok := p.plainText(n, "rule"); ok {
			e.Rule = &text
		}
	}
	for key, into := range map[string]**int64{"limit": &e.Limit, "remaining": &e.Remaining, "status": &e.Status} {
		if n := f.get(key); n != nil {
			if v, ok := p.integer(n, key, 0, 1<<53-1); ok {
				*into = &v
			}
		}
	}
	for key, into := range map[string]**time.Duration{"retry_after": &e.RetryAfter, "reset_after": &e.ResetAfter, "delay": &e.Delay} {
		if n := f.get(key); n != nil {
			*into = p.expectedDuration(n, key)
		}
	}
	p.readReason(f, &e)
	return e
}

func (p *testParser) expectedDuration(n *node, key string) *time.Duration {
	if n.text == "never" && key == "retry_after" {
		never := headgate.Never
		return &never
	}
	if d, ok := p.duration(n, key); ok {
		return &d
	}
	return nil
}

// readReason reads reason and shadow.
func (p *testParser) readReason(f fields, e *Expectation) {
	if n := f.get("reason"); n != nil {
		var known []string
		for r := headgate.OK; r <= headgate.NoLimit; r++ {
			known = append(known, r.String())
		}
		if word, ok := p.choice(n, "reason", append(known, "unknown_domain")...); ok {
			e.Reason = &word
		}
	}
	n := f.get("shadow")
	if n == nil {
		return
	}
	e.Shadow = []string{}
	if n.kind == listKind && len(n.items) == 0 {
		return
	}
	for _, t := range p.texts(n, "shadow") {
		e.Shadow = append(e.Shadow, t.text)
	}
	slices.Sort(e.Shadow)
}
