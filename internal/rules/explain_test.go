package rules_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/rules"
)

// explained returns a line for each rule: its name with the key that it counts
// by, or with why it does not apply.
func explained(set *rules.Ruleset, req rules.Request) string {
	list, known := set.Explain("d", req)
	if !known {
		return "unknown domain"
	}
	var b strings.Builder
	for _, e := range list {
		b.WriteString(e.Rule.Name + ":")
		if e.Applies {
			b.WriteString(" applies")
			parts, _ := rules.SplitKey(e.Key)
			for _, p := range parts {
				b.WriteString(" " + p.Value)
			}
			if !e.Enforced {
				b.WriteString(" (observes)")
			}
		}
		for i, m := range e.Mismatches {
			if i > 0 {
				b.WriteString(";")
			}
			b.WriteString(" " + m.String())
		}
		b.WriteString("\n")
	}
	return b.String()
}

const explainRules = `
domain: d
limits:
  - {name: login, rate: 5/minute, key: client_ip, match: {method: [POST, PUT], path: /login}}
  - {name: api, rate: 5/minute, key: ["header:X-Key", path], key_missing: skip, match: {path: [/v1/**, "!/v1/health"]}}
  - {name: net, rate: 5/minute, match: {client_ip: [10.0.0.0/8, "!10.1.0.0/16"], host: "*.example.com"}}
  - {name: plan, rate: 5/minute, mode: shadow, match: {headers: {X-Plan: free, X-In: {present: false}}, cookies: {s: {present: true}}, query: {q: {not: a*}}}}
descriptors:
  - key: path
    value: /v1/*
    rate_limit: {name: wild, unit: minute, requests_per_unit: 5}
  - key: path
    value: /v1/health
    rate_limit: {name: health, unit: minute, requests_per_unit: 5}
    descriptors:
      - {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}
`

func TestExplain(t *testing.T) {
	set := parse(t, explainRules)
	for words, want := range map[string]string{
		"method=post path=//login/ client_ip=10.1.2.3 header:X-Plan=paid+ header:X-In=1 query:q=abc": `
login: applies 10.1.2.3
api: path: wants /v1/**, is /login; key: wants a value of header:X-Key (key_missing: skip), is absent
net: host: wants *.example.com, is absent; client_ip: wants anything but 10.1.0.0/16, is 10.1.2.3
plan: header:X-Plan: wants free, is paid+; header:X-In: wants it to be absent, is 1; query:q: wants anything but a*, is abc; cookie:s: wants any value, is absent
path_/v1/_: path: wants /v1/*, is /login
path_/v1/health: path: wants /v1/health, is /login
path_/v1/health.user: path: wants /v1/health, is /login; user: wants any value, is absent
`,
		"method=GET path=/v1/health header:X-Plan=free cookie:s= query:q= host=a.example.com client_ip=192.0.2.1": `
login: method: wants POST or PUT, is GET; path: wants /login, is /v1/health
api: path: wants anything but /v1/health, is /v1/health; key: wants a value of header:X-Key (key_missing: skip), is absent
net: client_ip: wants 10.0.0.0/8, is 192.0.2.1
plan: applies (observes)
path_/v1/_: descriptor: wants to be the best match, is second to path=/v1/health (test.yaml:12:5)
path_/v1/health: applies
path_/v1/health.user: user: wants any value, is absent
`,
	} {
		if diff := cmp.Diff(want, "\n"+explained(set, request(t, words))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", words, diff)
		}
	}
	if _, known := set.Explain("e", request(t, "")); known {
		t.Error("the domain is known")
	}
}

// Of a descriptor the first level that differs is named.
func TestExplainDescriptor(t *testing.T) {
	set := parse(t, explainRules[:11]+explainRules[strings.Index(explainRules, "descriptors:"):])
	for words, want := range map[string]string{
		"path=/v1/health": `
path_/v1/_: descriptor: wants to be the best match, is second to path=/v1/health (test.yaml:7:5)
path_/v1/health: applies
path_/v1/health.user: entry 2: wants user, is absent
`,
		"path=/v1/health user=u": `
path_/v1/_: entry 2: wants no more entries, is user=u
path_/v1/health: entry 2: wants no more entries, is user=u
path_/v1/health.user: applies u
`,
		"user=u": `
path_/v1/_: entry 1: wants path=/v1/*, is user=u
path_/v1/health: entry 1: wants path=/v1/health, is user=u
path_/v1/health.user: entry 1: wants path=/v1/health, is user=u
`,
	} {
		if diff := cmp.Diff(want, "\n"+explained(set, &rules.Descriptor{Entries: entriesOf(words)})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", words, diff)
		}
	}
}

// Envoy's service takes the first wildcard of the file and looks no further.
func TestExplainInFileOrder(t *testing.T) {
	_, theirs := both(t, `
domain: d
descriptors:
  - {key: path, value: /api/*, descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 5}}]}
  - {key: path, value: /api/v1/*, rate_limit: {unit: hour, requests_per_unit: 5}}
`)
	want := "path_/api/_.user: entry 2: wants user, is absent\n" +
		"path_/api/v1/_: descriptor: wants to be the best match, is second to path=/api/* (test.yaml:4:5)\n"
	if got := explained(theirs, &rules.Descriptor{Entries: entriesOf("path=/api/v1/x")}); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestExplainReplaces(t *testing.T) {
	set := parse(t, `
domain: d
descriptors:
  - {key: a, rate_limit: {name: one, unit: hour, requests_per_unit: 5}}
  - {key: b, rate_limit: {name: two, replaces: [{name: one}], unit: hour, requests_per_unit: 5}}
`)
	one, _ := set.Explain("d", &rules.Descriptor{Entries: entriesOf("a=1")})
	two, _ := set.Explain("d", &rules.Descriptor{Entries: entriesOf("b=1")})
	rules.ExplainReplaces(one, two)
	if one[0].Applies || one[0].Mismatches[0].String() != "replaces: wants not to be replaced, is replaced by b (test.yaml:5:5)" {
		t.Errorf("%+v", one[0])
	}
	if !two[1].Applies {
		t.Errorf("%+v", two[1])
	}
}

// Whatever the rules and the request, Explain and Match agree, and whatever
// does not apply has a reason.
func TestExplainAgreesWithMatch(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	applied := 0
	for range 60 {
		var src strings.Builder
		src.WriteString("domain: d\nlimits:\n")
		for i := range 1 + r.IntN(10) {
			src.WriteString("  - {name: r" + string(rune('a'+i)) + ", rate: 1/s, key: [" + pick(r, "path", "x, client_ip") +
				"], key_missing: " + pick(r, "skip", "share") + ", percent: " + pick(r, "50", "100") + ", match: " + randomMatch(r) + "}\n")
		}
		src.WriteString("descriptors:\n")
		for _, value := range []string{"1", "2", "*"} {
			if r.IntN(2) == 0 {
				src.WriteString("  - {key: x, value: \"" + value + "\"" + pick(r, "", ", rate_limit: {rate: 1/s}") +
					pick(r, "", ", descriptors: [{key: y, rate_limit: {rate: 1/s}}]") + "}\n")
			}
		}
		ours, theirs := both(t, src.String())
		for range 100 {
			var req rules.Request = randomRequest(r)
			if r.IntN(2) == 0 {
				req = &rules.Descriptor{Entries: entriesOf(pick(r, "x=1", "x=2", "x=3", "x=1 y=1", "x=2 y=2", "y=1", "x=1 y=1 z=1", "path=/a x=1"))}
			}
			for _, set := range []*rules.Ruleset{ours, theirs} {
				applied += compareWithMatch(t, set, req)
			}
		}
	}
	if applied < 5000 {
		t.Errorf("only %d rules applied", applied)
	}
}

func compareWithMatch(t *testing.T, set *rules.Ruleset, req rules.Request) (applied int) {
	t.Helper()
	var m rules.Matches
	set.Match("d", req, &m)
	list, _ := set.Explain("d", req)
	want := map[*rules.Rule][]rules.Check{}
	for _, c := range m.Checks {
		want[c.Rule] = append(want[c.Rule], c)
	}
	if rows := len(set.Rules()) + len(m.Checks) - len(want); len(list) != rows {
		t.Fatalf("%d rows for %d rules", len(list), rows)
	}
	for _, e := range list {
		applies := len(want[e.Rule]) > 0
		same := !applies && e.Key == "" && !e.Enforced || slices.ContainsFunc(want[e.Rule], func(c rules.Check) bool {
			return c.Key == e.Key && c.Enforced == e.Enforced
		})
		if e.Applies != applies || !same || applies == (len(e.Mismatches) > 0) {
			t.Fatalf("%+v of %v: %+v, matched %+v", e.Rule, req, e, want[e.Rule])
		}
		for _, m := range e.Mismatches {
			if m.Want == "" || m.Got == "" || m.Got == "second to another" {
				t.Fatalf("%s of %v: %q", e.Rule.Name, req, m)
			}
		}
		if applies {
			applied++
		}
	}
	return applied
}

// The same in deep trees of many wildcards.
func TestExplainAgreesWithMatchInTrees(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 100 {
		count := 0
		var src strings.Builder
		src.WriteString("domain: d\ndescriptors:\n")
		writeDescriptors(&src, randomDescriptors(r, 3, &count), "  ")
		ours, theirs := both(t, src.String())
		for range 50 {
			var entries []rules.Entry
			plain := &fakeRequest{attributes: map[rules.Attribute]string{}}
			for range 1 + r.IntN(3) {
				e := rules.Entry{pick(r, "k", "l"), pick(r, "a", "ab", "aab", "abab", "b", "", "aabb")}
				entries = append(entries, e)
				plain.attributes[rules.Attribute{Name: e.Key}] = e.Value
			}
			for _, set := range []*rules.Ruleset{ours, theirs} {
				compareWithMatch(t, set, &rules.Descriptor{Entries: entries})
				compareWithMatch(t, set, plain)
			}
		}
	}
}
