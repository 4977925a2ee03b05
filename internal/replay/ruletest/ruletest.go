// Package ruletest runs rule tests: traces of requests on virtual time, decided by
// the engine that serve runs, with the expected verdicts.
package ruletest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/decide/standalone"
	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/features"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// Options are the options of Run.
type Options struct {
	Clients *client.Resolver // groups addresses. Required.
	Only    *regexp.Regexp   // Only, if not nil, selects tests by name
	// Asked, if not nil, is called from time to time with the number of requests
	// since the last call.
	Asked func(requests int)
	// Step, if not nil, is called after every step of a trace, with its position,
	// the request and the last verdict as text.
	Step func(position, request, got string)
	Done func(*Result) // Done, if not nil, is called after every test
}

// Result is the result of one test.
type Result struct {
	Name string `json:"name"`
	// File, Line and Column are the position of the test.
	File     string `json:"file"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Passed   bool   `json:"passed"`
	Requests int    `json:"requests"`
	// Failures are the first 10 failed steps; for a repeated step, its first
	// failed repetition.
	Failures []Failure `json:"failures,omitempty"`
	More     int       `json:"more_failures,omitempty"` // further failed steps
}

// Failure is an unexpected verdict.
type Failure struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	// Step is the number of the step in the trace, Repetition the number of the
	// request in the step, both from 1, and Of the number of repetitions.
	Step       int       `json:"step"`
	Repetition int       `json:"repetition"`
	Of         int       `json:"of"`
	At         time.Time `json:"at"`
	Request    string    `json:"request"`
	// Got is the verdict as text.
	Got    string  `json:"got"`
	Fields []Field `json:"fields"`
}

// Field is an unexpected part of a verdict.
type Field struct {
	Name string `json:"name"`
	Want string `json:"want"`
	Got  string `json:"got"`
}

// maxFailures limits the failures kept for a test.
const maxFailures = 10

// Run runs the tests of a file against rs. If the file uses names that the rules
// do not have, Run returns diagnostics and runs nothing. The error is ctx's.
func Run(ctx context.Context, file *File, rs *rules.Ruleset, o Options) ([]Result, []diagnostic.Diagnostic, error) {
	var tests []Test
	var problems []diagnostic.Diagnostic
	for _, t := range file.Tests {
		if o.Only != nil && !o.Only.MatchString(t.Name) {
			continue
		}
		problems = append(problems, checkNames(&t, rs)...)
		tests = append(tests, t)
	}
	if problems != nil {
		return nil, problems, nil
	}
	var results []Result
	for i := range tests {
		r := run{Options: o, test: &tests[i], store: memory.New()}
		r.engine, r.features = standalone.Replay(r.store, rs, func() time.Time { return r.now }, nil)
		if err := errors.Join(r.run(ctx), r.store.Close()); err != nil {
			return results, nil, err
		}
		if o.Done != nil {
			o.Done(&r.result)
		}
		results = append(results, r.result)
	}
	return results, nil, nil
}

// checkNames sets the domain of t and reports names that the rules do not have.
func checkNames(t *Test, rs *rules.Ruleset) []diagnostic.Diagnostic {
	at := func(line, column int, message, hint string) diagnostic.Diagnostic {
		return diagnostic.Diagnostic{File: t.File, Line: line, Column: column, Message: message, Hint: hint}
	}
	domains := rs.Domains()
	if t.Domain == "" && len(domains) == 1 {
		t.Domain = domains[0]
	}
	if t.Domain == "" {
		return []diagnostic.Diagnostic{at(t.Line, t.Column,
			fmt.Sprintf("test %q does not name a domain, and the rules have %d", t.Name, len(domains)),
			"set domain in the test or in the file to one of "+strings.Join(domains, ", "))}
	}
	if !slices.Contains(domains, t.Domain) && !expectsNoDomain(t) {
		return []diagnostic.Diagnostic{at(t.Line, t.Column,
			fmt.Sprintf("test %q: unknown domain %q", t.Name, t.Domain),
			Suggest(t.Domain, domains))}
	}
	names := map[string]bool{"": true}
	var list []string
	known := rs.Rules()
	for _, l := range rs.Lists() {
		known = append(known, l.Rule())
	}
	for _, r := range known {
		if r.Domain != t.Domain {
			continue
		}
		for _, name := range []string{r.Name, r.LimitName} {
			if !names[name] {
				names[name] = true
				list = append(list, name)
			}
		}
	}
	var out []diagnostic.Diagnostic
	for i := range t.Steps {
		for _, e := range t.Steps[i].Expect {
			wanted := slices.Concat(e.Shadow, e.Soft)
			if e.Rule != nil {
				wanted = append([]string{*e.Rule}, wanted...)
			}
			for _, name := range wanted {
				if !names[name] {
					out = append(out, at(e.Line, e.Column,
						fmt.Sprintf("domain %q has no rule %q", t.Domain, name), Suggest(name, list)))
				}
			}
		}
	}
	return out
}

// expectsNoDomain reports whether t expects an unknown domain.
func expectsNoDomain(t *Test) bool {
	for i := range t.Steps {
		for _, e := range t.Steps[i].Expect {
			if e.parts["reason"] == "unknown_domain" {
				return true
			}
		}
	}
	return false
}

// run is a test in progress.
type run struct {
	Options
	test     *Test
	store    store.Store
	engine   *engine.Engine
	features features.Workers // nil if they have nothing to do
	now      time.Time
	result   Result
	asked    int // requests reported to Asked
}

// often is the number of requests between calls of Asked and checks of the
// context.
const often = 1 << 14

func (r *run) run(ctx context.Context) error {
	t := r.test
	r.result = Result{Name: t.Name, File: t.File, Line: t.Line, Column: t.Column, Passed: true}
	for i := range t.Steps {
		s := &t.Steps[i]
		var last Got
		request := s.request(r.Clients)
		failed := false
		for n := range s.Repeat {
			if r.result.Requests++; r.result.Requests%often == 0 {
				r.tell()
				if err := ctx.Err(); err != nil {
					return err
				}
			}
			at := s.At.Add(time.Duration(n) * s.Every)
			got, err := r.ask(ctx, s, request, at)
			if err != nil {
				return fmt.Errorf("%s:%d:%d: %w", s.File, s.Line, s.Column, err)
			}
			if last = got; r.features != nil {
				r.features.Flush(ctx)
			}
			expect := &s.Expect[min(n, len(s.Expect)-1)]
			if fields := got.compare(expect); fields != nil && !failed {
				failed = true
				r.fail(Failure{
					File: s.File, Line: expect.Line, Column: expect.Column, Step: i + 1, Repetition: n + 1, Of: s.Repeat,
					At: at.In(t.Zone), Request: describe(s), Got: got.String(), Fields: fields,
				})
			}
		}
		if r.Step != nil {
			r.Step(diagnostic.Diagnostic{File: s.File, Line: s.Line, Column: s.Column}.Position(), describe(s), last.String())
		}
	}
	r.tell()
	return nil
}

// tell calls Asked with the requests since the last call.
func (r *run) tell() {
	if r.Asked != nil {
		r.Asked(r.result.Requests - r.asked)
	}
	r.asked = r.result.Requests
}

func (r *run) fail(f Failure) {
	r.result.Passed = false
	if len(r.result.Failures) == maxFailures {
		r.result.More++
		return
	}
	r.result.Failures = append(r.result.Failures, f)
}

// ask makes one request.
func (r *run) ask(ctx context.Context, s *Step, request *described.Request, at time.Time) (Got, error) {
	r.now = at
	now := at.UnixMicro()
	if s.Descriptors == nil {
		v, err := r.engine.Decide(ctx, engine.Query{
			Domain: r.test.Domain, Part: engine.Part{Request: request, Cost: s.Cost}, At: now,
		})
		defer v.Release()
		got := gotOf(&v)
		if err == nil && s.Answer != nil {
			err = r.engine.SettleAnswer(ctx, &v, now, *s.Answer)
		}
		return got, err
	}
	q := engine.Query{Domain: r.test.Domain, At: now}
	for _, entries := range s.Descriptors {
		q.Parts = append(q.Parts, engine.Part{
			Request: &described.Ordered{Given: rules.Descriptor{Entries: entries}, Clients: r.Clients}, Cost: s.Cost,
		})
	}
	v, err := r.engine.Decide(ctx, q)
	defer v.Release()
	return gotOfAll(&v), err
}

// request returns the attributes of a step as a request. The parser has checked
// them.
func (s *Step) request(clients *client.Resolver) *described.Request {
	q := new(described.Request)
	for _, a := range s.Attributes {
		q.Add(a.Attribute, a.Value, clients)
	}
	return q
}

// describe formats the request of a step for people.
func describe(s *Step) string {
	var out []string
	for _, a := range s.Attributes {
		switch a.Kind {
		case rules.Method, rules.Path:
			out = append(out, a.Value)
		case rules.Other, rules.Host, rules.ClientIP, rules.Header, rules.Query, rules.Cookie, rules.JWT:
			out = append(out, a.String()+"="+a.Value)
		}
	}
	for _, entries := range s.Descriptors {
		var parts []string
		for _, e := range entries {
			parts = append(parts, e.Key+"="+e.Value)
		}
		out = append(out, "("+strings.Join(parts, ", ")+")")
	}
	const most = 120
	return clip.Text(strings.ToValidUTF8(strings.Join(out, " "), ""), most)
}
