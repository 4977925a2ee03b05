package ruletest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/ownform"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// File is a file of rule tests: traces of requests with the expected verdicts.
// docs/try/rule-tests.md describes it.
type File struct {
	Name string // of the Source
	// Rules are the rule files and folders to test, relative to the file. If empty,
	// the folder of the file is tested.
	Rules []string
	Tests []Test
}

// Test is one trace. It starts with an empty store.
type Test struct {
	Name   string
	Domain string // may be empty if the rules have only one
	// Zone is the time zone of times without one.
	Zone  *time.Location
	Steps []Step
	// File, Line and Column are the position of the test.
	File         string
	Line, Column int
}

// Step is a request, or the same one several times.
type Step struct {
	// At is the time of the first request, Every the interval between requests.
	At     time.Time
	Every  time.Duration
	Repeat int // number of requests, at least 1
	// Attributes are the request, or else Descriptors.
	Attributes  []Attribute
	Descriptors [][]rules.Entry
	Cost        int64
	Answer      *rules.Answer // the answer to each request that passes; nil if nobody sees it
	// Expect has one element for all requests, or one for each.
	Expect       []Expectation
	File         string
	Line, Column int
}

// Attribute is an attribute of a request.
type Attribute struct {
	rules.Attribute
	Value string
}

// Expectation is the expected verdict. Parts that it does not have are not
// checked.
type Expectation struct {
	parts map[string]string // of the verdict, formatted as in Got
	Rule  *string           // name of the rule that refuses or is closest to its limit; empty for none, nil for any
	// Shadow are the names of rules in shadow mode that would have refused.
	Shadow       []string
	Soft         []string // names of the limits that mark the request
	Line, Column int
}

// Parse reads a file of rule tests. The File is nil if any diagnostic is an
// error.
func Parse(s rulefile.Source) (*File, []diagnostic.Diagnostic) {
	p := testParser{Parser: ownform.NewParser(nil)}
	p.Report = &yamltext.Report{File: s.Name}
	p.file = &File{Name: s.Name}
	docs := yamltext.Read(s.Data, p.Report)
	switch {
	case p.Errors > 0:
	case len(docs) == 0 || docs[0].Kind == yamltext.Null:
		p.FileError("the file has no tests", "")
	case len(docs) > 1:
		p.Errorf(docs[1], "", "a file of rule tests must be a single YAML document")
	default:
		p.parse(docs[0])
	}
	if p.Errors > 0 {
		return nil, p.Sorted()
	}
	return p.file, p.Sorted()
}

// FileKeys returns the keys of a file of rule tests.
func FileKeys() []string {
	return []string{"rules", "domain", "start", "timezone", "tests"}
}

// TestKeys returns the keys of one test.
func TestKeys() []string {
	return []string{"name", "description", "domain", "start", "timezone", "request", "descriptor", "descriptors", "trace"}
}

// StepKeys returns the keys of a step of a trace.
func StepKeys() []string {
	return []string{"at", "every", "repeat", "cost", "request", "descriptor", "descriptors", "answer", "expect"}
}

func expectKeys() []string {
	return []string{"allowed", "rule", "limit", "remaining", "retry_after", "reset_after", "delay", "status", "reason", "shadow", "soft"}
}

// testParser reads a file of rule tests.
type testParser struct {
	*ownform.Parser
	file *File
}

func (p *testParser) parse(doc *yamltext.Node) {
	if doc.Kind == yamltext.Map {
		own := make([]yamltext.Pair, 0, len(doc.Pairs))
		for _, field := range doc.Pairs {
			if !strings.HasPrefix(field.Key.Text, "x-") {
				own = append(own, field)
			}
		}
		doc.Pairs = own
	}
	f := p.Fields(doc, "a file of rule tests", FileKeys())
	if doc.Kind != yamltext.Map {
		return
	}
	if n := f.Get("rules"); n != nil {
		for _, t := range p.Texts(n, "rules") {
			p.file.Rules = append(p.file.Rules, t.Text)
		}
	}
	// 2026 starts on a Thursday, a whole number of days after 1970.
	base := Test{File: p.File, Zone: time.UTC}
	clock := testClock{start: time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC), zone: time.UTC}
	p.readPlace(f, &base, &clock)
	names := map[string]*yamltext.Node{}
	for i, item := range p.list(f, doc, "tests", "") {
		p.test(item, yamltext.Ordinal("test", i), base, clock, names)
	}
}

// list returns the items of the required list of a key of n.
func (p *testParser) list(f yamltext.Fields, n *yamltext.Node, key, where string) []*yamltext.Node {
	list := f.Get(key)
	switch {
	case list == nil && !yamltext.HasKey(n, key):
		p.Errorf(n, "", "%q is missing%s", key, where)
	case list == nil:
	case list.Kind != yamltext.List:
		p.Errorf(list, "", "%q must be a list, not %s", key, list.Kind)
	case len(list.Items) == 0:
		p.Errorf(list, "", "%q must not be empty", key)
	default:
		return list.Items
	}
	return nil
}

// readPlace reads domain, timezone and start, of a file or of a test.
func (p *testParser) readPlace(f yamltext.Fields, t *Test, clock *testClock) {
	if n := f.Get("domain"); n != nil {
		t.Domain, _ = p.DomainName(n)
	}
	if n := f.Get("timezone"); n != nil {
		clock.zone = p.Zone(n)
		t.Zone = clock.zone
		if !clock.given {
			y, m, d := clock.start.Date()
			clock.start = time.Date(y, m, d, 0, 0, 0, 0, clock.zone)
		}
	}
	if n := f.Get("start"); n != nil {
		if at, err := parseDate(n.Text, clock.zone); err != nil {
			p.Errorf(n, "for example 2026-01-01T11:00:00Z or 2026-01-01", "\"start\" %s is not a date", clip.Quote(n.Text))
		} else {
			clock.start, clock.given = at, true
		}
	}
}

// test reads one test.
func (p *testParser) test(n *yamltext.Node, what string, t Test, clock testClock, names map[string]*yamltext.Node) {
	if named := n.TextOf("name"); named != "" {
		what = "test " + clip.Quote(named)
	}
	f := p.Fields(n, what, TestKeys())
	if n.Kind != yamltext.Map {
		return
	}
	t.Line, t.Column = n.Line, n.Column
	switch name := f.Get("name"); {
	case name == nil && !yamltext.HasKey(n, "name"):
		p.Errorf(n, "", "\"name\" is missing in %s", what)
	case name != nil:
		var ok bool
		t.Name, ok = p.Word(name, "name")
		if first := names[t.Name]; ok && first != nil {
			p.Errorf(name, "", "duplicate name %s, first used on line %d", clip.Quote(t.Name), first.Line)
		}
		names[t.Name] = name
	}
	if n := f.Get("description"); n != nil {
		p.Word(n, "description")
	}
	p.readPlace(f, &t, &clock)
	clock.now = clock.start
	like := Step{Cost: 1, Repeat: 1, File: t.File}
	p.readRequest(f, n, &like)
	for i, item := range p.list(f, n, "trace", " in "+what) {
		p.step(item, fmt.Sprintf("%s of %s", yamltext.Ordinal("step", i), what), like, &clock, &t)
	}
	p.file.Tests = append(p.file.Tests, t)
}

// maxRepeat limits the repetitions of a step.
const maxRepeat = 1_000_000

// step reads one step of a trace. like has the defaults of the test.
func (p *testParser) step(n *yamltext.Node, what string, like Step, clock *testClock, t *Test) {
	f := p.Fields(n, what, StepKeys())
	if n.Kind != yamltext.Map {
		return
	}
	s := like
	s.Line, s.Column = n.Line, n.Column
	p.readRequest(f, n, &s)
	if s.Attributes == nil && s.Descriptors == nil {
		p.Errorf(n, "for example: request: {path: /login}", "%s has no request", what)
	}
	if n := f.Get("cost"); n != nil {
		s.Cost, _ = p.Integer(n, "cost", 0, 1<<53-1)
	}
	if n := f.Get("answer"); n != nil {
		s.Answer = p.answer(n)
	}
	repeat := f.Get("repeat")
	if repeat != nil {
		times, _ := p.Integer(repeat, "repeat", 1, maxRepeat)
		s.Repeat = int(times)
	}
	if n := f.Get("every"); n != nil {
		s.Every, _ = p.duration(n, "every")
	}
	p.readExpect(f, n, what, &s)
	if repeat != nil && len(s.Expect) > 1 && len(s.Expect) != s.Repeat {
		p.Errorf(repeat, "", "%s is repeated %d times, but \"expect\" lists %d verdicts", what, s.Repeat, len(s.Expect))
	}
	s.Repeat = max(s.Repeat, len(s.Expect))
	p.readAt(f, clock, &s)
	t.Steps = append(t.Steps, s)
}

// readAt reads the time of a step and moves the clock to its end.
func (p *testParser) readAt(f yamltext.Fields, clock *testClock, s *Step) {
	if n := f.Get("at"); n != nil {
		at, err := clock.parse(n)
		switch {
		case err != nil:
			p.Errorf(n, "for example 1m30s after the start, +500ms after the previous step, 11:00:59, or a date", "\"at\" %v", err)
		case at.Year() > lastYear:
			p.Errorf(n, "", "\"at\" %s is after the year %d", clip.Quote(n.Text), lastYear)
		case at.Before(clock.now):
			p.Errorf(n, "", "\"at\" %s is before the end of the previous step, %s", clip.Quote(n.Text), clock.now.In(clock.zone).Format(time.RFC3339Nano))
		default:
			clock.now = at
		}
	}
	s.At = clock.now
	if s.Every > maxTestTime/time.Duration(s.Repeat) || clock.now.Add(time.Duration(s.Repeat)*s.Every).Year() > lastYear {
		p.Errorf(f.Get("every"), "", "the step ends after the year %d", lastYear)
		return
	}
	clock.now = clock.now.Add(time.Duration(s.Repeat-1) * s.Every)
}

// Suggest returns a hint with the known name nearest to text, or with all of them
// if they are few.
func Suggest(text string, known []string) string {
	const most = 10
	switch near := nearest.Word(text, known); {
	case near != "":
		return fmt.Sprintf("did you mean %q?", near)
	case len(known) <= most:
		return "known: " + strings.Join(known, ", ")
	}
	return ""
}

// Foreign reports whether a file named like a rule test belongs to another
// program, such as promtool: apart from "tests" and the names of tests it has none
// of our keys, not even misspelt. what is one of its keys.
func Foreign(s rulefile.Source) (what string, foreign bool) {
	docs := yamltext.Read(s.Data, &yamltext.Report{File: s.Name})
	if len(docs) == 0 || docs[0].Kind != yamltext.Map {
		return "", false
	}
	for _, field := range docs[0].Pairs {
		switch key := field.Key.Text; {
		case key == "tests":
			if slices.ContainsFunc(field.Value.Items, isOurTest) {
				return "", false
			}
		case strings.HasPrefix(key, "x-"):
		case nearest.Word(key, FileKeys()) != "":
			return "", false
		case what == "":
			what = key
		}
	}
	return what, what != ""
}

// isOurTest reports whether n has a key that only our tests have, even misspelt.
func isOurTest(n *yamltext.Node) bool {
	return slices.ContainsFunc(n.Pairs, func(field yamltext.Pair) bool {
		near := nearest.Word(field.Key.Text, TestKeys())
		return near != "" && near != "name" && near != "description"
	})
}
