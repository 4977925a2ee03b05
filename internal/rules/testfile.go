package rules

import (
	"fmt"
	"strings"
	"time"
)

// TestFile is a file of rule tests: traces of requests with the verdicts that
// they must get. docs/rule-tests.md describes the form.
type TestFile struct {
	// Name is that of the Source.
	Name string
	// Rules are the rule files and folders to test, relative to the file; if
	// there are none, those of its folder.
	Rules []string
	Tests []Test
}

// Test is one trace. It begins with nothing counted.
type Test struct {
	Name string
	// Domain may be empty where the rules have only one.
	Domain string
	// Zone is that of times without one.
	Zone  *time.Location
	Steps []TestStep
	// File, Line and Column say where the test stands.
	File         string
	Line, Column int
}

// TestStep is a request, or the same one several times.
type TestStep struct {
	// At is when the first is made, Every how much later each other.
	At    time.Time
	Every time.Duration
	// Repeat is how often it is made, at least once.
	Repeat int
	// Attributes are the request, or else Descriptors.
	Attributes  []TestAttribute
	Descriptors [][]Entry
	Cost        int64
	// Expect is one for all, or one for each.
	Expect       []Expectation
	File         string
	Line, Column int
}

// TestAttribute is an attribute of a request.
type TestAttribute struct {
	Attribute
	Value string
}

// Expectation is what a verdict must be. What is nil may be anything.
type Expectation struct {
	Allowed *bool
	// Rule is the name of the rule that refuses or constrains most; empty for
	// none.
	Rule *string
	// Limit and Remaining are numbers of its answer, in requests.
	Limit, Remaining *int64
	// RetryAfter may be headgate.Never.
	RetryAfter, ResetAfter, Delay *time.Duration
	// Status is the HTTP status: 200, or that of the rule that refuses.
	Status *int64
	// Reason is as in the HTTP API.
	Reason *string
	// Shadow are the names of rules that only observe and would have refused;
	// nil may be anything, an empty list none.
	Shadow       []string
	Line, Column int
}

// FindTests reads rule tests: the files that are named, and of folders and the
// folders in them all files that end in _test.yaml or _test.yml, sorted by
// their path.
func FindTests(paths ...string) ([]Source, []Diagnostic) {
	c := collector{seen: map[string]bool{}, tests: true}
	for _, path := range paths {
		c.collect(path)
	}
	return c.sources, c.problems
}

// ParseTests reads a file of rule tests. The TestFile is nil if any of the
// diagnostics is an error.
func ParseTests(s Source) (*TestFile, []Diagnostic) {
	p := testParser{parser: parser{reporter: &reporter{file: s.Name}, zones: map[string]*time.Location{}}}
	p.file = &TestFile{Name: s.Name}
	docs := readYAML(s.Data, p.reporter)
	switch {
	case p.errors > 0:
	case len(docs) == 0 || docs[0].kind == nullKind:
		p.fileError("the file holds no tests", "")
	case len(docs) > 1:
		p.errorf(docs[1], "", "rule tests are one YAML document, and this is a second")
	default:
		p.parse(docs[0])
	}
	if p.errors > 0 {
		return nil, p.sorted()
	}
	return p.file, p.sorted()
}

func testFileKeys() []string {
	return []string{"rules", "domain", "start", "timezone", "tests"}
}

func testKeys() []string {
	return []string{"name", "description", "domain", "start", "timezone", "request", "descriptor", "descriptors", "trace"}
}

func testStepKeys() []string {
	return []string{"at", "every", "repeat", "cost", "request", "descriptor", "descriptors", "expect"}
}

func expectKeys() []string {
	return []string{"allowed", "rule", "limit", "remaining", "retry_after", "reset_after", "delay", "status", "reason", "shadow"}
}

// testParser reads a file of rule tests.
type testParser struct {
	parser
	file *TestFile
}

func (p *testParser) parse(doc *node) {
	if doc.kind == mapKind {
		own := make([]pair, 0, len(doc.pairs))
		for _, field := range doc.pairs {
			if !strings.HasPrefix(field.key.text, "x-") {
				own = append(own, field)
			}
		}
		doc.pairs = own
	}
	f := p.fields(doc, "a file of rule tests", testFileKeys())
	if doc.kind != mapKind {
		return
	}
	if n := f.get("rules"); n != nil {
		for _, t := range p.texts(n, "rules") {
			p.file.Rules = append(p.file.Rules, t.text)
		}
	}
	// 2026 begins on a Thursday, at a whole number of days since 1970.
	base := Test{File: p.reporter.file, Zone: time.UTC}
	clock := testClock{start: time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC), zone: time.UTC}
	p.readPlace(f, &base, &clock)
	list := f.get("tests")
	switch {
	case list == nil && !hasKey(doc, "tests"):
		p.errorf(doc, "", "\"tests\" is missing")
	case list == nil:
	case list.kind != listKind:
		p.errorf(list, "", "\"tests\" must be a list, not %s", list.kind)
	case len(list.items) == 0:
		p.errorf(list, "", "the list of \"tests\" is empty")
	default:
		names := map[string]*node{}
		for i, item := range list.items {
			p.test(item, ordinal("test", i), base, clock, names)
		}
	}
}

// readPlace reads domain, timezone and start, of a file or of a test.
func (p *testParser) readPlace(f fields, t *Test, clock *testClock) {
	if n := f.get("domain"); n != nil {
		t.Domain, _ = p.domainName(n)
	}
	if n := f.get("timezone"); n != nil {
		l := limitForm{parser: &p.parser}
		clock.zone = l.zone(n)
		t.Zone = clock.zone
		if !clock.given {
			y, m, d := clock.start.Date()
			clock.start = time.Date(y, m, d, 0, 0, 0, 0, clock.zone)
		}
	}
	if n := f.get("start"); n != nil {
		if at, err := parseDate(n.text, clock.zone); err != nil {
			p.errorf(n, "write a date, such as 2026-01-01T11:00:00Z or 2026-01-01", "\"start\" %s is not a date", quote(n.text))
		} else {
			clock.start, clock.given = at, true
		}
	}
}

// test reads one test.
func (p *testParser) test(n *node, what string, t Test, clock testClock, names map[string]*node) {
	if named := nameOf(n); named != "" {
		what = "test " + quote(named)
	}
	f := p.fields(n, what, testKeys())
	if n.kind != mapKind {
		return
	}
	t.Line, t.Column = n.line, n.column
	switch name := f.get("name"); {
	case name == nil && !hasKey(n, "name"):
		p.errorf(n, "", "\"name\" is missing in %s", what)
	case name != nil:
		var ok bool
		t.Name, ok = p.word(name, "name")
		if first := names[t.Name]; ok && first != nil {
			p.errorf(name, "", "the name %s is taken on line %d", quote(t.Name), first.line)
		}
		names[t.Name] = name
	}
	if n := f.get("description"); n != nil {
		p.word(n, "description")
	}
	p.readPlace(f, &t, &clock)
	clock.now = clock.start
	like := TestStep{Cost: 1, Repeat: 1, File: t.File}
	p.readRequest(f, n, &like)
	trace := f.get("trace")
	switch {
	case trace == nil && !hasKey(n, "trace"):
		p.errorf(n, "", "\"trace\" is missing in %s", what)
	case trace == nil:
	case trace.kind != listKind:
		p.errorf(trace, "", "\"trace\" must be a list, not %s", trace.kind)
	case len(trace.items) == 0:
		p.errorf(trace, "", "the list of \"trace\" is empty")
	default:
		for i, item := range trace.items {
			p.step(item, fmt.Sprintf("%s of %s", ordinal("step", i), what), like, &clock, &t)
		}
	}
	p.file.Tests = append(p.file.Tests, t)
}

// maxRepeat is how often a step may be repeated.
const maxRepeat = 1_000_000

// step reads one step of a trace. like is what the test says of all of them.
func (p *testParser) step(n *node, what string, like TestStep, clock *testClock, t *Test) {
	f := p.fields(n, what, testStepKeys())
	if n.kind != mapKind {
		return
	}
	s := like
	s.Line, s.Column = n.line, n.column
	p.readRequest(f, n, &s)
	if s.Attributes == nil && s.Descriptors == nil {
		p.errorf(n, "for example request: {path: /login}", "%s has no request", what)
	}
	if n := f.get("cost"); n != nil {
		s.Cost, _ = p.integer(n, "cost", 0, 1<<53-1)
	}
	repeat := f.get("repeat")
	if repeat != nil {
		times, _ := p.integer(repeat, "repeat", 1, maxRepeat)
		s.Repeat = int(times)
	}
	if n := f.get("every"); n != nil {
		s.Every, _ = p.duration(n, "every")
	}
	p.readExpect(f, n, what, &s)
	if repeat != nil && len(s.Expect) > 1 && len(s.Expect) != s.Repeat {
		p.errorf(repeat, "", "%s is repeated %d times, and \"expect\" lists %d verdicts", what, s.Repeat, len(s.Expect))
	}
	s.Repeat = max(s.Repeat, len(s.Expect))
	p.readAt(f, clock, &s)
	t.Steps = append(t.Steps, s)
}

// readAt reads when a step is, and moves the clock to its end.
func (p *testParser) readAt(f fields, clock *testClock, s *TestStep) {
	if n := f.get("at"); n != nil {
		at, err := clock.parse(n)
		switch {
		case err != nil:
			p.errorf(n, "write 1m30s since the start, +500ms since the step before, 11:00:59, or a date", "\"at\" %v", err)
		case at.Year() > lastYear:
			p.errorf(n, "", "\"at\" %s is after the year %d", quote(n.text), lastYear)
		case at.Before(clock.now):
			p.errorf(n, "", "\"at\" %s is before the end of the step before it, %s", quote(n.text), clock.now.In(clock.zone).Format(time.RFC3339Nano))
		default:
			clock.now = at
		}
	}
	s.At = clock.now
	if s.Every > maxTestTime/time.Duration(s.Repeat) || clock.now.Add(time.Duration(s.Repeat)*s.Every).Year() > lastYear {
		p.errorf(f.get("every"), "", "the step ends after the year %d", lastYear)
		return
	}
	clock.now = clock.now.Add(time.Duration(s.Repeat-1) * s.Every)
}

// Suggest returns a hint with the name of known that text was most likely meant
// to be, or with all if they are few.
func Suggest(text string, known []string) string {
	const most = 10
	switch near := nearest(text, known); {
	case near != "":
		return fmt.Sprintf("did you mean %q?", near)
	case len(known) <= most:
		return "known are " + strings.Join(known, ", ")
	}
	return ""
}
