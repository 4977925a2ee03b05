package ruletest_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/replay/ruletest"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

const testRules = `
domain: d
priorities: {classes: [critical, default], from: "header:X-Class"}
limits:
  - {name: fleet, match: {path: /fleet}, rate: 10/hour, headroom: {critical: 50%}}
  - {name: login, match: {path: /login}, key: client_ip, rate: 5/minute, algorithm: fixed_window, on_limit: {status: 503}}
  - {name: gentle, match: {path: /gentle}, rate: 4/hour, algorithm: fixed_window, soft: 50%}
  - {name: kind, match: {path: /gentle}, rate: 3/hour, algorithm: fixed_window, on_limit: pass}
  - {name: seen, match: {path: /login}, rate: 1/minute, mode: shadow}
descriptors:
  - {key: a, quota_mode: true, rate_limit: {name: first, unit: minute, requests_per_unit: 1}}
  - {key: b, quota_mode: true, rate_limit: {name: second, unit: minute, requests_per_unit: 2}}
`

func run(t *testing.T, src string, only *regexp.Regexp) []ruletest.Result {
	t.Helper()
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(testRules)})
	file, problems := ruletest.Parse(rulefile.Source{Name: "a_test.yaml", Data: []byte(src)})
	if rs == nil || file == nil {
		t.Fatal(diagnostics, problems)
	}
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	results, problems, err := ruletest.Run(t.Context(), file, rs, ruletest.Options{
		Clients: clients, Only: only,
	})
	if err != nil || problems != nil {
		t.Fatal(problems, err)
	}
	return results
}

// TestUnknownDomain: a test of an unknown domain passes only if it expects one.
func TestUnknownDomain(t *testing.T) {
	rs, _ := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(testRules)})
	for expect, want := range map[string]string{
		"allowed": `test "a": unknown domain "dd"; known: d`,
		"any":     `test "a": unknown domain "dd"`,
		"{reason: unknown_domain, allowed: true}": "",
	} {
		file, problems := ruletest.Parse(rulefile.Source{Name: "a_test.yaml", Data: []byte("domain: dd\ntests: [{name: a, trace: [{request: {path: /login}, expect: " + expect + "}]}]")})
		if file == nil {
			t.Fatal(problems)
		}
		clients, err := client.New(client.Config{})
		if err != nil {
			t.Fatal(err)
		}
		results, problems, err := ruletest.Run(t.Context(), file, rs, ruletest.Options{Clients: clients})
		if got := diagnostic.Problems(problems).Error(); err != nil || !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: %q, %v, want %q", expect, got, err, want)
		}
		if want == "" && (len(results) != 1 || !results[0].Passed) {
			t.Errorf("%s: %+v", expect, results)
		}
	}
}

// Every unexpected part of a verdict is reported with both values.
func TestDifferences(t *testing.T) {
	for expect, want := range map[string]string{
		"refused":                   "expect: refused, not allowed",
		"{allowed: false}":          "expect: refused, not allowed",
		"{rule: ''}":                "rule: none, not login",
		"{rule: seen}":              "rule: seen, not login",
		"{limit: 4, remaining: 3}":  "limit: 4, not 5; remaining: 3, not 4",
		"{status: 503}":             "status: 503, not 200",
		"{retry_after: 1s}":         "retry_after: 1s, not 0s",
		"{retry_after: never}":      "retry_after: never, not 0s",
		"{reset_after: 60.000001s}": "reset_after: 1m0.000001s, not 1m0s",
		"{delay: 1us}":              "delay: 1µs, not 0s",
		"{reason: limited}":         "reason: limited, not ok",
		"{shadow: [seen]}":          "shadow: seen, not none",
		"{soft: login}":             "soft: login, not none",
		"any":                       "",
		"{allowed: true, rule: login, limit: 5, remaining: 4, status: 200, retry_after: 0s, reset_after: 1m, delay: 0s, reason: ok, shadow: [], soft: []}": "",
	} {
		r := run(t, "tests: [{name: x, trace: [{request: {path: /login, client_ip: 192.0.2.1}, expect: "+expect+"}]}]", nil)[0]
		var got []string
		for _, f := range r.Failures {
			for _, field := range f.Fields {
				got = append(got, field.Name+": "+field.Want+", not "+field.Got)
			}
		}
		if text := strings.Join(got, "; "); text != want || r.Passed != (want == "") {
			t.Errorf("%s: got %q, want %q", expect, text, want)
		}
	}
}

// A failure has its step, request and time.
func TestFailureTellsItsPlace(t *testing.T) {
	r := run(t, `
timezone: Asia/Tokyo
tests:
  - name: x
    request: {path: /login, client_ip: 192.0.2.1}
    trace:
      - {at: 09:00, repeat: 3, expect: allowed}
      - at: +1s
        every: 1s
        repeat: 4
        expect: allowed
`, nil)[0]
	want := ruletest.Result{
		Name: "x", File: "a_test.yaml", Line: 4, Column: 5, Requests: 7,
		Failures: []ruletest.Failure{{
			File: "a_test.yaml", Line: 11, Column: 17, Step: 2, Repetition: 3, Of: 4,
			At: time.Date(2026, 1, 1, 0, 0, 3, 0, time.UTC), Request: "/login client_ip=192.0.2.1",
			Got:    "refused by login, 0 of 5 remaining, retry after 57s, would be refused by seen",
			Fields: []ruletest.Field{{Name: "expect", Want: "allowed", Got: "refused"}},
		}},
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Every test starts with an empty store; Only skips the others.
func TestTestsStandAlone(t *testing.T) {
	const one = "request: {path: /login}, trace: [{repeat: 5, expect: allowed}, {expect: {allowed: false, status: 503}}]}"
	src := "tests: [{name: first, " + one + ", {name: second, " + one + "]"
	if r := run(t, src, nil); len(r) != 2 || !r[0].Passed || !r[1].Passed {
		t.Errorf("%+v", r)
	}
	if r := run(t, src, regexp.MustCompile("^sec")); len(r) != 1 || r[0].Name != "second" {
		t.Errorf("%+v", r)
	}
}

// A header field that a test names chooses the class, as if a trusted proxy sent it. One that
// Envoy copies from the client does not.
func TestHeadersChooseClasses(t *testing.T) {
	r := run(t, `
tests:
  - name: named
    trace:
      - {request: {path: /fleet}, repeat: 5, expect: allowed}
      - {request: {path: /fleet}, expect: {allowed: false, reason: headroom}}
      - {request: {path: /fleet, headers: {X-Class: default}}, expect: {allowed: false, reason: headroom}}
      - {request: {path: /fleet, headers: {X-Class: critical}}, repeat: 5, expect: allowed}
      - {request: {path: /fleet, headers: {X-Class: critical}}, expect: {allowed: false, reason: limited}}
  - name: copied
    descriptors: [{path: /fleet, "header:X-Class": critical}]
    trace:
      - {repeat: 5, expect: allowed}
      - {expect: {allowed: false, reason: headroom}}
`, nil)
	for _, one := range r {
		if !one.Passed {
			t.Errorf("%s: %+v", one.Name, one.Failures)
		}
	}
}

// The parts of a request make one verdict: one quota must remain.
func TestMarks(t *testing.T) {
	r := run(t, `
tests:
  - name: soft
    request: {path: /gentle}
    trace:
      - {repeat: 2, expect: {soft: []}}
      - {expect: {soft: gentle}}
      - {expect: {allowed: true, soft: [kind, gentle]}}
      - {expect: {allowed: false, soft: []}}
`, nil)[0]
	if !r.Passed {
		t.Errorf("%+v", r.Failures)
	}
}

func TestDescriptorsMakeOneVerdict(t *testing.T) {
	r := run(t, `
tests:
  - name: x
    descriptors: [{a: 1}, {b: 1}]
    trace:
      - {expect: {allowed: true, rule: first, remaining: 0}}
      - {expect: {allowed: true, rule: second, remaining: 0}}
      - {expect: {allowed: false, status: 429}}
`, nil)[0]
	if !r.Passed {
		t.Errorf("%+v", r.Failures)
	}
}

// Only the first ten failures are reported.
func TestFailuresAreBounded(t *testing.T) {
	src := "tests: [{name: x, request: {path: /}, trace: [" + strings.Repeat("{expect: refused}, ", 25) + "]}]"
	if r := run(t, src, nil)[0]; r.Passed || len(r.Failures) != 10 || r.More != 15 {
		t.Errorf("%d failures and %d more", len(r.Failures), r.More)
	}
}

// The order and number of the entries of a descriptor decide which rule applies,
// as in Envoy's service.
func TestDescriptorsAreOrdered(t *testing.T) {
	for entries, want := range map[string]string{
		"[{a: 1}]":       "allowed: true, rule: first",
		"[{a: 1, b: 1}]": "allowed: true, rule: ''",
		"[{b: 1, a: 1}]": "allowed: true, rule: ''",
	} {
		r := run(t, "tests: [{name: x, trace: [{descriptors: "+entries+", expect: {"+want+"}}]}]", nil)[0]
		if !r.Passed {
			t.Errorf("%s: %+v, want %s", entries, r.Failures, want)
		}
	}
}

// An answer gives back what it does not count, and a wrong one is reported.
func TestAnswers(t *testing.T) {
	rs, _ := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(
		"domain: d\nlimits: [{name: a, rate: 2/day, algorithm: fixed_window, charge_on: {status: 401, grpc: UNAUTHENTICATED, headers: {X-Login: failed}}}]")})
	for answer, want := range map[string]string{
		"{status: 200}": "2", "{status: 401}": "0", "{grpc: OK}": "2", "{grpc: UNAUTHENTICATED}": "0",
		"{status: 200, headers: {x-login: failed}}": "0", "{headers: {X-Login: [ok]}}": "2",
		"{status: 40}": `"status" must be from 100 to 599, not 40`, "{grpc: UNAUTHENTICATE}": "unknown grpc",
		"{}": "the answer is empty", "401": "answer must be a mapping", "{code: 3}": "unknown key", "{headers: {\"X Y\": z}}": "invalid header name",
		"{headers: 5}": `"headers" must be a mapping`,
	} {
		src := "tests:\n  - name: a\n    request: {path: /}\n    trace: [{repeat: 2, expect: allowed, answer: " + answer + "}, {expect: {remaining: " + strings.Trim(want[:1], "\"") + "}, cost: 0}]"
		file, problems := ruletest.Parse(rulefile.Source{Name: "a_test.yaml", Data: []byte(src)})
		if file == nil {
			if !strings.HasPrefix(problems[0].Message, want) {
				t.Errorf("%s: %v, want %s", answer, problems, want)
			}
			continue
		}
		clients, err := client.New(client.Config{})
		if err != nil {
			t.Fatal(err)
		}
		results, problems, err := ruletest.Run(t.Context(), file, rs, ruletest.Options{Clients: clients})
		if err != nil || problems != nil || !results[0].Passed {
			t.Errorf("%s: %v %v %+v", answer, err, problems, results)
		}
	}
}
