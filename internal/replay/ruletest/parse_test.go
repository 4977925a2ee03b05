package ruletest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// parseTests reads a valid file of tests.
func parseTests(t *testing.T, src string) *File {
	t.Helper()
	file, problems := Parse(rulefile.Source{Name: "a_test.yaml", Data: []byte(src)})
	if file == nil || problems != nil {
		t.Fatal(diagnostic.Problems(problems))
	}
	return file
}

// The forms of at, relative to the current time of the trace.
func TestTimesOfATrace(t *testing.T) {
	file := parseTests(t, `
timezone: Europe/Berlin
start: 2026-03-28T12:00:00
tests:
  - name: a
    request: {path: /}
    trace:
      - {expect: any}
      - {at: 1m30s, expect: any}
      - {at: +500ms, expect: any, every: 1s, repeat: 3}
      - {at: +0s, expect: [any, any]}
      - {at: "13:00", expect: any}
      - {at: 1d, expect: any}
      - {at: 2026-03-29 23:59:59.999999, expect: any}
      - {at: 2026-03-30T00:00:00Z, expect: any}
`)
	want := []string{
		"2026-03-28T12:00:00+01:00", "2026-03-28T12:01:30+01:00", "2026-03-28T12:01:30.5+01:00", "2026-03-28T12:01:32.5+01:00",
		"2026-03-28T13:00:00+01:00", "2026-03-29T13:00:00+02:00", "2026-03-29T23:59:59.999999+02:00", "2026-03-30T02:00:00+02:00",
	}
	var got []string
	for _, s := range file.Tests[0].Steps {
		got = append(got, s.At.In(file.Tests[0].Zone).Format(time.RFC3339Nano))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if s := file.Tests[0].Steps; s[2].Repeat != 3 || s[3].Repeat != 2 || len(s[3].Expect) != 2 {
		t.Errorf("%+v", s)
	}
}

func TestRequestsOfATrace(t *testing.T) {
	file := parseTests(t, `
tests:
  - name: a
    trace:
      - {request: {method: POST, client_ip: 192.0.2.1, tenant: 7, headers: {x-plan: free}, "query:q": true, cookies: {s: ""}, attributes: {"jwt:sub": u}}, cost: 0, expect: any}
      - {descriptor: {b: 1, a: 2}, expect: any}
      - {descriptors: ["a=1,b", {c: ""}], expect: any}
`)
	steps := file.Tests[0].Steps
	var got []string
	for _, a := range steps[0].Attributes {
		got = append(got, a.String()+"="+a.Value)
	}
	if diff := cmp.Diff("method=POST client_ip=192.0.2.1 tenant=7 header:X-Plan=free query:q=true cookie:s= jwt:sub=u", strings.Join(got, " ")); diff != "" || steps[0].Cost != 0 {
		t.Errorf("-want +got:\n%s", diff)
	}
	want := [][][]rules.Entry{{{{Key: "b", Value: "1"}, {Key: "a", Value: "2"}}}, {{{Key: "a", Value: "1"}, {Key: "b", Value: ""}}, {{Key: "c", Value: ""}}}}
	if diff := cmp.Diff(want, [][][]rules.Entry{steps[1].Descriptors, steps[2].Descriptors}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Each mistake is reported with its position and the nearest valid word.
func TestParseTestsExplains(t *testing.T) {
	const step = "tests: [{name: a, trace: [{request: {path: /}, expect: any, "
	for src, want := range map[string]string{
		"":                  "a_test.yaml: the file has no tests",
		"[]":                "a_test.yaml:1:1: a file of rule tests must be a mapping (key: value), not a list",
		"a: b\n---\nc: d\n": "3:1: a file of rule tests must be a single YAML document",
		"test: []":          `1:1: unknown key "test" in a file of rule tests, did you mean "tests"?`,
		"domain: d":         `1:1: "tests" is missing`,
		"tests: {}":         `1:8: "tests" must be a list, not a mapping`,
		"tests: []":         `1:8: "tests" must not be empty`,
		"tests: [{trace: [{request: {}, expect: any}]}]": `"name" is missing in test 1`,
		"tests: [{name: a}]":                             `1:9: "trace" is missing in test "a"`,
		"tests: [{name: a, trace: []}]":                  `"trace" must not be empty`,
		"tests: [{name: a, trace: [{expect: any}]}]":     `step 1 of test "a" has no request; for example: request: {path: /login}`,
		"tests: [{name: a, trace: [{request: {}, expect: any}]}, {name: a, trace: [{request: {}, expect: any}]}]": `duplicate name "a", first used on line 1`,
		"tests: [{name: a, trace: [{request: {}}]}]":                                                              `"expect" is missing in step 1 of test "a"; use allowed, refused, any, or a mapping`,
		"tests: [{name: a, trace: [{request: {}, descriptor: {a: b}, expect: any}]}]":                             `"request", "descriptor" and "descriptors" cannot be combined`,
		"tests: [{name: a, trace: [{request: {client_ip: x}, expect: any}]}]":                                     `"x" is not an IP address`,
		"tests: [{name: a, trace: [{request: {path: []}, expect: any}]}]":                                         `"path" must be text, not a list`,
		"tests: [{name: a, trace: [{request: {header: x}, expect: any}]}]":                                        `"header" needs a name, such as header:X-Api-Key`,
		"tests: [{name: a, trace: [{request: {path: /, path2: /}, expect: any}]}]":                                `warning: "path2" is a custom attribute, did you mean "path"?`,
		"tests: [{name: a, trace: [{request: {path: /, ip: 192.0.2.1}, expect: any}]}]":                           `warning: "ip" is a custom attribute, did you mean "client_ip"?`,
		"tests: [{name: a, trace: [{request: {path: /, X-Api-Key: k}, expect: any}]}]":                            `warning: "X-Api-Key" is a custom attribute, did you mean "header:X-Api-Key"?`,
		"tests: [{name: a, trace: [{request: {\"header:A\": 1, headers: {a: 2}}, expect: any}]}]":                 `duplicate "header:A"`,
		"tests: [{name: a, trace: [{descriptor: {}, expect: any}]}]":                                              "the descriptor is empty",
		"tests: [{name: a, trace: [{descriptor: 7, expect: any}]}]":                                               "a descriptor must be a mapping, not a number",
		"tests: [{name: a, trace: [{descriptors: [], expect: any}]}]":                                             `"descriptors" must be a list of descriptors`,
		"start: yesterday\ntests: [{name: a, trace: [{request: {}, expect: any}]}]":                               `1:8: "start" "yesterday" is not a date; for example 2026-01-01`,
		"start: 1066-10-14\ntests: [{name: a, trace: [{request: {}, expect: any}]}]":                              `"start" "1066-10-14" is not a date`,
		"timezone: Mars\ntests: [{name: a, trace: [{request: {}, expect: any}]}]":                                 `1:11: unknown timezone "Mars"`,
		step + "att: 1s}]}]":                       `unknown key "att" in step 1 of test "a", did you mean "at"?`,
		step + "at: 5}]}]":                         `"at" is not a time; for example 1m30s after the start`,
		step + "at: soon}]}]":                      `"at" "soon" is not a time`,
		step + "at: 0.5us}]}]":                     `"at" "0.5us" is not a time`,
		step + "repeat: 0}]}]":                     `"repeat" must be from 1 to 1000000, not 0`,
		step + "every: 5}]}]":                      `"every" must be a duration in whole microseconds, not "5"; a duration needs a unit`,
		step + "every: 8000h, repeat: 1000000}]}]": "the step ends after the year 2100",
		step + "cost: -1}]}]":                      `"cost" must be from 0`,
		"tests: [{name: a, trace: [{request: {}, expect: [any, any], repeat: 3}]}]":                           `is repeated 3 times, but "expect" lists 2 verdicts`,
		"tests: [{name: a, trace: [{request: {}, expect: []}]}]":                                              `"expect" must not be empty`,
		"tests: [{name: a, trace: [{request: {}, expect: {}}]}]":                                              `"expect" must not be empty; use any to accept every verdict`,
		"tests: [{name: a, trace: [{request: {path: login}, expect: any}]}]":                                  `the path "login" must start with /`,
		"tests: [{name: a, trace: [{request: {}, expect: allowwed}]}]":                                        `unknown expect "allowwed", did you mean "allowed"?`,
		"tests: [{name: a, trace: [{request: {}, expect: {remaning: 1}}]}]":                                   `unknown key "remaning" in expect, did you mean "remaining"?`,
		"tests: [{name: a, trace: [{request: {}, expect: {retry_after: 5}}]}]":                                `"retry_after" must be a duration`,
		"tests: [{name: a, trace: [{request: {}, expect: {reset_after: never}}]}]":                            `"reset_after" must be a duration`,
		"tests: [{name: a, trace: [{request: {}, expect: {reason: limitted}}]}]":                              `unknown reason "limitted", did you mean "limited"?`,
		"tests: [{name: a, trace: [{request: {}, at: 2s, expect: any}, {request: {}, at: 1s, expect: any}]}]": `"at" "1s" is before the end of the previous step, 2026-01-01T00:00:02Z`,
	} {
		_, problems := Parse(rulefile.Source{Name: "a_test.yaml", Data: []byte(src)})
		if text := diagnostic.Problems(problems).Error(); !strings.Contains(text, want) {
			t.Errorf("%s:\ngot  %s\nwant %s", src, text, want)
		}
	}
}

func TestFindTests(t *testing.T) {
	folder := write(t, "b_test.yaml", "tests", "sub/a_test.yml", "tests", "rules.yaml", "domain: d\nlimits: [{name: x, rate: 1/s}]\n", ".hidden_test.yaml", "tests")
	found, problems := rulefile.FindTests(folder)
	var names []string
	for _, s := range found {
		names = append(names, strings.TrimPrefix(s.Name, folder))
	}
	if diff := cmp.Diff([]string{"/b_test.yaml", "/sub/a_test.yml"}, names); diff != "" || problems != nil {
		t.Errorf("%v, -want +got:\n%s", problems, diff)
	}
	if found, problems := rulefile.FindTests(folder + "/rules.yaml"); found != nil || !strings.Contains(diagnostic.Problems(problems).Error(), "not a rule test file; rule tests end in _test.yaml") {
		t.Errorf("%v, %v", found, problems)
	}
}

// FuzzParseTests: whatever a file holds, there are tests that can be run, or
// words about what is wrong.
func FuzzParseTests(f *testing.F) {
	for _, seed := range []string{
		"tests: [{name: a, trace: [{at: 11:00:59, request: {method: POST, client_ip: '::1'}, every: 1s, repeat: 5, expect: [any, {allowed: false, retry_after: never}]}]}]",
		"rules: a\ndomain: d\nstart: 2026-01-01T11:00:00Z\ntimezone: Asia/Tokyo\ntests:\n- name: b\n  descriptor: {a: b}\n  trace: [{at: +1d, expect: allowed}]\n",
		"tests: [{name: a, trace: [{descriptors: ['a=b\\\\,c'], at: 100y, expect: {shadow: [x]}}]}]", "x-a: &a [*a]\n", "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		file, problems := Parse(rulefile.Source{Name: "a_test.yaml", Data: src})
		if (file == nil) != diagnostic.HasErrors(problems) {
			t.Fatalf("a file: %t, with %v", file != nil, problems)
		}
		if file == nil {
			return
		}
		for _, test := range file.Tests {
			last := time.Time{}
			for _, s := range test.Steps {
				if s.At.Before(last) || s.Repeat < 1 || len(s.Expect) != 1 && len(s.Expect) != s.Repeat || (s.Attributes == nil) == (s.Descriptors == nil) {
					t.Fatalf("%+v after %v", s, last)
				}
				last = s.At.Add(time.Duration(s.Repeat-1) * s.Every)
				if y := last.Year(); y < 1970 || y > lastYear+1 {
					t.Fatalf("%+v ends in %d", s, y)
				}
			}
		}
	})
}

// write puts files into a new folder: name, text, name, text.
func write(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		name := filepath.Join(dir, files[i])
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(files[i+1]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
