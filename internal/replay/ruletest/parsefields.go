package ruletest

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/ownform"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/internal/rules/yamltext"
	"github.com/headgate/headgate/store"
)

// testClock is the current time of a trace.
type testClock struct {
	start, now time.Time
	zone       *time.Location
	given      bool // the start, in the file
}

// parse reads a time: after the start, after the previous step, of the day, or
// with a date.
func (c *testClock) parse(n *yamltext.Node) (time.Time, error) {
	text := n.Text
	switch {
	case n.Kind != yamltext.Text:
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
	return time.Time{}, errors.New(clip.Quote(text) + " is not a time")
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

// inYears refuses times that stores do not support.
func inYears(at time.Time) (time.Time, error) {
	if y := at.Year(); y < 1971 || y > lastYear {
		return time.Time{}, errors.New("out of range")
	}
	return at, nil
}

// lastYear is the last year of a test.
const lastYear = 2100

// maxTestTime is the longest duration in a test.
const maxTestTime = 20 * 365 * 24 * time.Hour

// parseTestDuration reads Go durations, such as 11.25s, and periods of rates, such
// as 7d.
func parseTestDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		d, _, err = rate.ParsePeriod(text)
	}
	if err != nil || d < 0 || d > maxTestTime || d%time.Microsecond != 0 || strings.HasPrefix(text, "+") {
		return 0, errors.New(clip.Quote(text) + " is not a duration")
	}
	return d, nil
}

func (p *testParser) duration(n *yamltext.Node, key string) (time.Duration, bool) {
	d, err := parseTestDuration(n.Text)
	if err != nil || n.Kind != yamltext.Text {
		p.Errorf(n, "a duration needs a unit, for example 11.25s", "%q must be a duration in whole microseconds, not %s", key, clip.Quote(n.Text))
		return 0, false
	}
	return d, true
}

// readRequest reads request, descriptor or descriptors, if there are any.
func (p *testParser) readRequest(f yamltext.Fields, at *yamltext.Node, s *Step) {
	given := 0
	if n := f.Get("request"); n != nil {
		given++
		s.Attributes, s.Descriptors = p.request(n), nil
	}
	if n := f.Get("descriptor"); n != nil {
		given++
		s.Attributes, s.Descriptors = nil, [][]rules.Entry{p.entries(n)}
	}
	if n := f.Get("descriptors"); n != nil {
		given++
		s.Attributes, s.Descriptors = nil, [][]rules.Entry{}
		if n.Kind != yamltext.List || len(n.Items) == 0 {
			p.Errorf(n, "", "\"descriptors\" must be a list of descriptors")
		}
		for _, item := range n.Items {
			s.Descriptors = append(s.Descriptors, p.entries(item))
		}
	}
	if given > 1 {
		p.Errorf(at, "", "\"request\", \"descriptor\" and \"descriptors\" cannot be combined")
	}
}

// request reads the attributes of a request: by their names, or in sections as
// under match.
func (p *testParser) request(n *yamltext.Node) []Attribute {
	out := []Attribute{}
	if n.Kind != yamltext.Map {
		p.Errorf(n, "for example: {method: POST, path: /login}", "\"request\" must be a mapping of attributes to values, not %s", n.Kind)
		return out
	}
	for _, field := range n.Pairs {
		section := false
		for key, kind := range ownform.ValueSections() {
			if field.Key.Text != key || field.Value.Kind != yamltext.Map {
				continue
			}
			section = true
			for _, inner := range field.Value.Pairs {
				a, err := ownform.ValueAttribute(kind, inner.Key.Text)
				out = p.addAttribute(out, inner, a, err)
			}
		}
		if !section {
			a, err := rules.ParseAttribute(field.Key.Text)
			out = p.addAttribute(out, field, a, err)
		}
	}
	return out
}

// addAttribute adds one attribute if it is valid.
func (p *testParser) addAttribute(out []Attribute, field yamltext.Pair, a rules.Attribute, err error) []Attribute {
	text, ok := p.plainText(field.Value, field.Key.Text)
	switch {
	case err != nil:
		p.Errorf(field.Key, "", "%v", err)
		return out
	case !ok:
		return out
	case slices.ContainsFunc(out, func(other Attribute) bool { return other.Attribute == a }):
		p.Errorf(field.Key, "", "duplicate %s", clip.Quote(a.String()))
		return out
	}
	if a.Kind == rules.Other {
		known := append([]string{"method", "path", "host", "client_ip"}, "headers", "query", "cookies", "jwt", "attributes")
		meant := nearest.DidYouMean(a.Name, known)
		if right, _ := ownform.Meaning(a.Name); meant == "" && right != "" && !strings.HasPrefix(right, "jwt:") {
			meant = ", did you mean \"" + right + "\"?"
		}
		if meant != "" {
			p.Warnf(field.Key, "", "%s is a custom attribute%s", clip.Quote(a.Name), meant)
		}
	}
	if a.Kind == rules.Path && text != "" && text[0] != '/' && text != "*" {
		p.Errorf(field.Value, "", "the path %s must start with /", clip.Quote(text))
		return out
	}
	if a.Kind == rules.ClientIP {
		if address, err := netip.ParseAddr(text); err != nil || address.Zone() != "" {
			p.Errorf(field.Value, "", "%s is not an IP address", clip.Quote(text))
			return out
		}
	}
	return append(out, Attribute{a, text})
}

// plainText reads a scalar as it is written.
func (p *testParser) plainText(n *yamltext.Node, key string) (string, bool) {
	switch n.Kind {
	case yamltext.Text, yamltext.Number, yamltext.Bool:
		return n.Text, true
	case yamltext.Null, yamltext.List, yamltext.Map:
	}
	p.Errorf(n, "write \"\" for an empty value", "%q must be text, not %s", key, n.Kind)
	return "", false
}

// entries reads a descriptor: {key: value, …} in this order, or the text
// key=value,key=value.
func (p *testParser) entries(n *yamltext.Node) []rules.Entry {
	var out []rules.Entry
	switch n.Kind {
	case yamltext.Text:
		var err error
		if out, err = rules.ParseDescriptor(n.Text); err != nil {
			p.Errorf(n, "", "%v", err)
		}
	case yamltext.Map:
		for _, field := range n.Pairs {
			if field.Key.Text == "" {
				p.Errorf(field.Key, "", "the key is empty")
			}
			text, _ := p.plainText(field.Value, field.Key.Text)
			out = append(out, rules.Entry{Key: field.Key.Text, Value: text})
		}
		if len(out) == 0 {
			p.Errorf(n, "", "the descriptor is empty")
		}
	case yamltext.Null, yamltext.Number, yamltext.Bool, yamltext.List:
		p.Errorf(n, "write {key: value}, or \"key=value,key=value\"", "a descriptor must be a mapping, not %s", n.Kind)
	}
	return out
}

// readExpect reads expect: a verdict, or a list of them.
func (p *testParser) readExpect(f yamltext.Fields, at *yamltext.Node, what string, s *Step) {
	n := f.Get("expect")
	if n == nil {
		if !yamltext.HasKey(at, "expect") {
			p.Errorf(at, "use allowed, refused, any, or a mapping", "\"expect\" is missing in %s", what)
		}
		return
	}
	items := []*yamltext.Node{n}
	if n.Kind == yamltext.List {
		items = n.Items
		if len(items) == 0 {
			p.Errorf(n, "", "\"expect\" must not be empty")
		}
		if len(items) > maxRepeat {
			p.Errorf(n, "", "\"expect\" lists more than %d verdicts", maxRepeat)
			return
		}
	}
	for _, item := range items {
		s.Expect = append(s.Expect, p.expectation(item))
	}
}

// expectation reads allowed, refused, any, or a mapping.
func (p *testParser) expectation(n *yamltext.Node) Expectation {
	e := Expectation{parts: map[string]string{}, Line: n.Line, Column: n.Column}
	if n.Kind != yamltext.Map {
		if word, ok := p.Choice(n, "expect", "allowed", "refused", "any"); ok && word != "any" {
			e.parts["expect"] = word
		}
		return e
	}
	f := p.Fields(n, "expect", expectKeys())
	if len(n.Pairs) == 0 {
		p.Errorf(n, "use any to accept every verdict", "\"expect\" must not be empty")
	}
	if n := f.Get("allowed"); n != nil {
		if yes, ok := p.Boolean(n, "allowed"); ok {
			e.parts["expect"] = verdict(yes)
		}
	}
	if n := f.Get("rule"); n != nil {
		if text, ok := p.plainText(n, "rule"); ok {
			e.Rule, e.parts["rule"] = &text, cmp.Or(text, none)
		}
	}
	for _, key := range []string{"limit", "remaining", "status"} {
		if n := f.Get(key); n != nil {
			if v, ok := p.Integer(n, key, 0, 1<<53-1); ok {
				e.parts[key] = strconv.FormatInt(v, 10)
			}
		}
	}
	for _, key := range []string{"retry_after", "reset_after", "delay"} {
		n := f.Get(key)
		if n == nil {
			continue
		}
		if n.Text == "never" && key == "retry_after" {
			e.parts[key] = duration(headgate.Never)
		} else if d, ok := p.duration(n, key); ok {
			e.parts[key] = duration(d)
		}
	}
	p.readReason(f, &e)
	p.readNames(f, &e, "shadow", &e.Shadow)
	p.readNames(f, &e, "soft", &e.Soft)
	return e
}

// readReason reads reason.
func (p *testParser) readReason(f yamltext.Fields, e *Expectation) {
	if n := f.Get("reason"); n != nil {
		var known []string
		for r := headgate.ReasonOK; r <= store.ReasonBanned; r++ {
			known = append(known, r.String())
		}
		if word, ok := p.Choice(n, "reason", append(known, store.ReasonHeadroom.String(), store.ReasonShare.String(), "unknown_domain")...); ok {
			e.parts["reason"] = word
		}
	}
}

// readNames reads a list of rules, which may be empty.
func (p *testParser) readNames(f yamltext.Fields, e *Expectation, key string, into *[]string) {
	n := f.Get(key)
	if n == nil {
		return
	}
	if n.Kind != yamltext.List || len(n.Items) > 0 {
		for _, t := range p.Texts(n, key) {
			*into = append(*into, t.Text)
		}
	}
	slices.Sort(*into)
	e.parts[key] = cmp.Or(strings.Join(*into, ", "), none)
}
