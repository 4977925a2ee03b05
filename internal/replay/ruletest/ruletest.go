// Package ruletest runs rule tests: traces of requests on virtual time against
// the engine that serves, and says where a verdict is not as expected.
package ruletest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/described"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store/memory"
)

// Options say how tests are run.
type Options struct {
	Clients *client.Resolver // says how addresses are grouped to be counted. Required.
	Only    *regexp.Regexp   // Only, if not nil, runs the tests whose names it matches
	// Asked, if not nil, is called now and then with how many requests have
	// been made since the last call.
	Asked func(requests int)
	// Step, if not nil, is told of every step of a trace once it is done: where
	// it is, the request, and the last verdict, in words.
	Step func(position, request, got string)
	Done func(*Result) // Done, if not nil, is told of every test once it is over
}

// Result is how one test went.
type Result struct {
	Name string `json:"name"`
	// File, Line and Column say where the test stands.
	File     string `json:"file"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Passed   bool   `json:"passed"`
	Requests int    `json:"requests"`
	// Failures are the steps that failed, at most 10 of them; of a repeated
	// step the first repetition.
	Failures []Failure `json:"failures,omitempty"`
	More     int       `json:"more_failures,omitempty"` // how many more steps failed
}

// Failure is a verdict that is not as expected.
type Failure struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	// Step is the step's place in the trace, Repetition that of the request in
	// the step, both counted from 1, and Of how many repetitions there are.
	Step       int       `json:"step"`
	Repetition int       `json:"repetition"`
	Of         int       `json:"of"`
	At         time.Time `json:"at"`
	Request    string    `json:"request"`
	// Got is the verdict in words.
	Got    string  `json:"got"`
	Fields []Field `json:"fields"`
}

// Field is a part of a verdict that is not as expected.
type Field struct {
	Name string `json:"name"`
	Want string `json:"want"`
	Got  string `json:"got"`
}

// maxFailures is how many failures of a test are kept.
const maxFailures = 10

// Run runs the tests of a file against rs. Diagnostics are about names in the
// file that the rules do not have; nothing is run then. The error is ctx's.
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
		r.engine = engine.New(r.store, rs)
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

// checkNames finds the domain of t, and says which names the rules do not have.
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
			fmt.Sprintf("the test %q names no domain, and the rules have %d", t.Name, len(domains)),
			"add domain: to the test or to the file: "+strings.Join(domains, ", "))}
	}
	if !slices.Contains(domains, t.Domain) && !expectsNoDomain(t) {
		return []diagnostic.Diagnostic{at(t.Line, t.Column,
			fmt.Sprintf("the test %q is about the domain %q, which the rules do not have", t.Name, t.Domain),
			Suggest(t.Domain, domains))}
	}
	names := map[string]bool{"": true}
	var list []string
	for _, r := range rs.Rules() {
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
			wanted := e.Shadow
			if e.Rule != nil {
				wanted = append([]string{*e.Rule}, wanted...)
			}
			for _, name := range wanted {
				if !names[name] {
					out = append(out, at(e.Line, e.Column,
						fmt.Sprintf("the domain %q has no rule %q", t.Domain, name), Suggest(name, list)))
				}
			}
		}
	}
	return out
}

// expectsNoDomain reports whether t says that the domain is not there.
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

// run is one test under way.
type run struct {
	Options
	test   *Test
	store  headgate.Store
	engine *engine.Engine
	result Result
	asked  int // since Asked was told
}

// often is after how many requests Asked is told, and the context asked.
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
			last = got
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

// tell tells how many requests there were since the last time.
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
	now := at.UnixMicro()
	if s.Descriptors == nil {
		v, err := r.engine.Decide(ctx, engine.Query{
			Domain: r.test.Domain, Request: request, Cost: s.Cost, At: now,
		})
		defer v.Release()
		return gotOf(&v), err
	}
	q := engine.MultiQuery{Domain: r.test.Domain, At: now}
	for _, entries := range s.Descriptors {
		q.Parts = append(q.Parts, engine.Part{
			Request: &described.Ordered{Told: rules.Descriptor{Entries: entries}, Clients: r.Clients}, Cost: s.Cost,
		})
	}
	v, err := r.engine.DecideAll(ctx, q)
	defer v.Release()
	return gotOfAll(&v), err
}

// request returns the attributes of a step as a request. The file has been checked,
// so that each of them is right.
func (s *Step) request(clients *client.Resolver) *described.Request {
	q := new(described.Request)
	for _, a := range s.Attributes {
		q.Add(a.Attribute, a.Value, clients)
	}
	return q
}

// describe writes the request of a step for people.
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
