package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/base/plain"
	"github.com/headgate/headgate/internal/replay/offline"
	"github.com/headgate/headgate/internal/replay/ruletest"
	"github.com/headgate/headgate/internal/rules/schema"
)

func newTest(s streams) *cobra.Command {
	var f testFlags
	cmd := &cobra.Command{
		Use:   "test [PATH...]",
		Short: "run rule tests",
		Long: `Test runs rule tests: files whose names end in _test.yaml, each with requests at
given times and the expected decisions. Time is virtual, so a test that spans a
month runs as fast as one that spans a second. Folders are searched for such
files; the default is the current folder. Rules are read as serve reads them.

The exit code is 0 if all tests pass, and 1 if one fails, a file is wrong or
there are no tests.`,
		Example: `  headgate test rules/
  headgate test -v --run 'login' rules/login_test.yaml`,
		ValidArgsFunction: ruleFiles,
	}
	f.reading.ruleOptions(cmd)
	cmd.Flags().StringVar(&f.only, "run", "", "run only tests whose names match this regular expression")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "print every test and every step")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print the result as JSON")
	cmd.Flags().BoolVar(&f.schema, "schema", false, "print the JSON Schema of rule tests, for editors")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.schema {
			_, err := fmt.Fprint(s.out, schema.RuleTests())
			return err
		}
		if len(args) == 0 {
			args = []string{"."}
		}
		return f.run(cmd.Context(), s, args)
	}
	return cmd
}

// testFlags are the flags of test.
type testFlags struct {
	reading                 flags
	only                    string
	asJSON, verbose, schema bool
}

func (f *testFlags) run(ctx context.Context, s streams, paths []string) error {
	c, err := f.reading.loadOffline()
	if err != nil {
		return err
	}
	t := offline.RuleTests{Paths: paths, Reading: c.RuleOptions}
	if f.only != "" {
		if t.Only, err = regexp.Compile(f.only); err != nil {
			return &usageError{fmt.Sprintf("--run: %v", err), "escape special characters such as dots and brackets with a backslash"}
		}
	}
	p := newProgress(s)
	t.Asked = p.add
	if !f.asJSON {
		out := testOutput{paint: newPaint(s.out), verbose: f.verbose}
		t.Done = func(r *ruletest.Result) {
			p.clear()
			out.test(r)
		}
		if f.verbose {
			t.Step = out.step
		}
	}
	r, err := t.Run(ctx)
	p.clear()
	if err != nil {
		return err
	}
	if err := f.print(s, r); err != nil {
		return err
	}
	switch {
	case !r.OK:
		return &failedError{exitFailed}
	case len(r.Tests) == 0 && f.only != "" && r.Files > 0:
		return &usageError{fmt.Sprintf("no test matches --run %q", f.only), "headgate test -v prints all names"}
	case len(r.Tests) == 0:
		newPaint(s.err).line("error", "no rule tests in "+strings.Join(paths, ", "))
		newPaint(s.err).line("hint", "the names of test files end in _test.yaml")
		return &failedError{exitFailed}
	}
	return nil
}

// testOutput prints the results of rule tests for people.
type testOutput struct {
	paint
	verbose bool
}

// step prints a step; its test follows when it has finished.
func (o testOutput) step(position, request, got string) {
	o.printf("      %s: %s: %s\n", position, request, got)
}

func (o testOutput) test(t *ruletest.Result) {
	if t.Passed && !o.verbose {
		return
	}
	word := o.in(green, "ok  ")
	if !t.Passed {
		word = o.in(red, "FAIL")
	}
	o.printf("%s  %s:%d:%d: %s (%s)\n", word, t.File, t.Line, t.Column, t.Name, plain.Count(t.Requests, "request"))
	for i := range t.Failures {
		o.failure(&t.Failures[i])
	}
	if t.More > 0 {
		o.printf("      … and %s more\n", plain.Count(t.More, "step"))
	}
}

func (o testOutput) failure(f *ruletest.Failure) {
	which := ""
	if f.Of > 1 {
		which = fmt.Sprintf(", request %d of %d", f.Repetition, f.Of)
	}
	o.printf("      %s:%d:%d: step %d%s, at %s\n", f.File, f.Line, f.Column, f.Step, which, f.At.Format(time.RFC3339Nano))
	o.printf("      %s\n", f.Request)
	o.printf("      %s\n", f.Got)
	width := 0
	for _, field := range f.Fields {
		width = max(width, len(field.Name))
	}
	for _, field := range f.Fields {
		o.printf("      %s\n", o.in(green, fmt.Sprintf("- %-*s  %s", width, field.Name, field.Want)))
		o.printf("      %s\n", o.in(red, fmt.Sprintf("+ %-*s  %s", width, field.Name, field.Got)))
	}
}

// print prints the summary after all tests.
func (f *testFlags) print(s streams, r offline.TestReport) error {
	if f.asJSON {
		return printJSON(s.out, r)
	}
	newPaint(s.err).diagnoses(r.Diagnoses)
	newPaint(s.err).skipped(r.Skipped)
	if len(r.Tests) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(s.out, "%d passed, %d failed\n", r.Passed, r.Failed)
	return err
}

// progress shows on a terminal how many requests have been made, once the tests
// take longer than patience.
type progress struct {
	overwritten
	requests int
	began    time.Time
}

const patience = time.Second

func newProgress(s streams) *progress {
	p := &progress{overwritten: overwritten{paint: newPaint(s.err)}}
	if isTerminal(s.err) {
		p.began = time.Now()
	}
	return p
}

func (p *progress) add(requests int) {
	p.requests += requests
	if p.began.IsZero() || time.Since(p.began) < patience {
		return
	}
	p.write(fmt.Sprintf("%d requests", p.requests))
}
