package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules"
)

// mismatch returns why the only rule of d does not apply.
func mismatch(set *rules.Ruleset, req rules.Request) string {
	list, _ := set.Explain("d", req)
	var out []string
	for _, m := range list[0].Mismatches {
		out = append(out, m.String())
	}
	return strings.Join(out, "; ")
}

// A value that would be misread in a line is shown in quotes, and a long one is cut.
func TestValuesAreShown(t *testing.T) {
	t.Parallel()
	set := parse(t, "domain: d\nlimits: [{name: r, rate: 1/s, match: {attributes: {x: wanted}}}]\n")
	for value, want := range map[string]string{
		"plain": "plain", "a-b/c;d'e": "a-b/c;d'e", "日本": "日本", strings.Repeat("x", 60): strings.Repeat("x", 60),
		"": `""`, "absent": `"absent"`, "a b": `"a b"`, " ": `" "`, `a"b`: `"a\"b"`, "a,b": `"a,b"`, ",": `","`, "a\nb": `"a\nb"`, "\x00": `"\x00"`,
		"a\xffb": `"a\xffb"`, "a\ufffdb": `"a�b"`, "\u200b": `"\u200b"`, "\u00a0": `"\u00a0"`,
	} {
		if got := mismatch(set, having{"x": value}); got != "x: wants wanted, is "+want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
	if got := mismatch(set, having{"x": strings.Repeat("x", 61)}); !strings.HasPrefix(got, `x: wants wanted, is "xxxx`) {
		t.Errorf("61 letters: %s", got)
	}
	if got := mismatch(set, having{}); got != "x: wants wanted, is absent" {
		t.Errorf("none: %s", got)
	}
}

// Of what a condition asks for the first few are listed.
func TestAlternativesAreListed(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{
		1: "v1", 2: "v1 or v2", 3: "v1, v2 or v3", 5: "v1, v2, v3, v4 or v5", 6: "v1, v2, v3, v4, v5 or 1 more", 30: "v1, v2, v3, v4, v5 or 25 more",
	} {
		var texts []string
		for i := range n {
			texts = append(texts, fmt.Sprintf("v%d", i+1))
		}
		set := parse(t, "domain: d\nlimits: [{name: r, rate: 1/s, match: {attributes: {x: "+quoted(texts)+"}}}]\n")
		if got := mismatch(set, having{"x": "w"}); got != "x: wants "+want+", is w" {
			t.Errorf("%d values: %s", n, got)
		}
		if got := set.Rules()[0].Conditions(); got != "x is "+want {
			t.Errorf("%d values in one line: %s", n, got)
		}
	}
}

// Each kind of condition says what it wants and what there is.
func TestMismatchesOfEachCondition(t *testing.T) {
	t.Parallel()
	for match, rows := range map[string]map[string]string{
		"{method: POST}":                               {"": "method: wants POST, is absent", "method=get": "method: wants POST, is GET", "method=post": ""},
		`{method: ["!POST", "!PUT"]}`:                  {"method=put": "method: wants anything but PUT, is PUT", "": ""},
		"{path: [/a, /b/**]}":                          {"": "path: wants /a or /b/**, is absent", "path=//c/": "path: wants /a or /b/**, is /c"},
		`{path: ["!/a", "!/b/*"]}`:                     {"path=/b/c": "path: wants anything but /b/*, is /b/c", "path=/c": "", "": ""},
		`{host: ["*.a.test", "!x.a.test"]}`:            {"host=X.a.test:80": "host: wants anything but x.a.test, is x.a.test", "host=b": "host: wants *.a.test, is b", "host=y.a.test": ""},
		`{client_ip: [10.0.0.0/8, 192.0.2.1]}`:         {"": "client_ip: wants 10.0.0.0/8 or 192.0.2.1, is absent", "client_ip=::1": "client_ip: wants 10.0.0.0/8 or 192.0.2.1, is ::1", "client_ip=::": ""},
		`{client_ip: ["!10.0.0.0/8", "!10.1.0.0/16"]}`: {"client_ip=10.1.2.3": "client_ip: wants anything but 10.0.0.0/8 or 10.1.0.0/16, is 10.1.2.3", "client_ip=10.2.0.1": "client_ip: wants anything but 10.0.0.0/8, is 10.2.0.1", "": ""},
		"{headers: {X-A: {present: true}}}":            {"": "header:X-A: wants any value, is absent", "header:X-A=": ""},
		"{headers: {X-A: {present: false}}}":           {"header:X-A=": `header:X-A: wants it to be absent, is ""`, "": ""},
		"{headers: {X-A: {present: true, not: b}}}":    {"": "header:X-A: wants any value, is absent", "header:X-A=b": "header:X-A: wants anything but b, is b", "header:X-A=c": ""},
		"{query: {q: {not: [a*, ab]}}}":                {"query:q=ab": "query:q: wants anything but a* or ab, is ab", "query:q=ac": "query:q: wants anything but a*, is ac", "": ""},
	} {
		set := parse(t, "domain: d\nlimits: [{name: r, rate: 1/s, match: "+match+"}]\n")
		for words, want := range rows {
			if got := mismatch(set, request(t, words)); got != want {
				t.Errorf("%s of %s: %q, want %q", match, words, got, want)
			}
			if applies := matched(set, "d", request(t, words)) == "r"; applies != (want == "") {
				t.Errorf("%s of %s: applies %v", match, words, applies)
			}
		}
	}
}

// Rules that apply come first, then those that miss least; what is equal stays in the
// order of the file.
func TestNearestExplanationsComeFirst(t *testing.T) {
	t.Parallel()
	set := parse(t, `
domain: d
limits:
  - {name: three, rate: 1/s, match: {method: PUT, path: /b, host: b}}
  - {name: one, rate: 1/s, match: {method: GET, path: /b}}
  - {name: two, rate: 1/s, match: {method: PUT, path: /b, host: a}}
  - {name: none, rate: 1/s, match: {method: GET}}
  - {name: another, rate: 1/s, match: {host: b}}
  - {name: all, rate: 1/s}
`)
	list, _ := set.Explain("d", request(t, "method=GET path=/a host=a"))
	rules.SortNearest(list)
	var got []string
	for _, e := range list {
		got = append(got, fmt.Sprintf("%s %d", e.Rule.Name, len(e.Mismatches)))
	}
	if want := "none 0, all 0, one 1, another 1, two 2, three 3"; strings.Join(got, ", ") != want {
		t.Errorf("%s, want %s", strings.Join(got, ", "), want)
	}
}

// A rule that another replaces is explained by that other, if that one applies; one
// that does not apply is explained by its conditions, and replaces nothing.
func TestExplanationsOfReplacedRules(t *testing.T) {
	t.Parallel()
	set := parse(t, `
domain: d
descriptors:
  - {key: user, rate_limit: {name: user, unit: day, requests_per_unit: 1}}
  - {key: plan, value: pro, rate_limit: {name: pro, unit: day, requests_per_unit: 9, replaces: [{name: user}]}}
  - {key: plan, rate_limit: {name: plan, unit: day, requests_per_unit: 2}}
`)
	for words, want := range map[string]string{
		"user=a | plan=pro":            "user replaced by plan_pro (test.yaml:5:5), pro",
		"plan=pro | user=a | plan=pro": "pro, user replaced by plan_pro (test.yaml:5:5), pro",
		"user=a | plan=free":           "user, plan",
		"plan=free | user=a":           "plan, user",
		"plan=pro":                     "pro",
	} {
		var parts [][]rules.Explanation
		for descriptor := range strings.SplitSeq(words, " | ") {
			list, _ := set.Explain("d", &rules.Descriptor{Entries: entriesOf(descriptor)})
			parts = append(parts, list)
		}
		rules.ExplainReplaces(parts...)
		var got []string
		for _, list := range parts {
			for _, e := range list {
				switch {
				case e.Applies:
					got = append(got, e.Rule.LimitName)
				case e.Mismatches[0].Condition == "replaces":
					got = append(got, e.Rule.LimitName+" "+e.Mismatches[0].Got)
				}
			}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %q, want %s", words, got, want)
		}
	}
}

// A descriptor rule shows which entry differs, or which other descriptor is the better
// match, for descriptors and for other requests.
func TestMismatchesOfDescriptors(t *testing.T) {
	t.Parallel()
	ours, theirs := both(t, `
domain: d
descriptors:
  - key: path
    value: /v1/*
    descriptors:
      - {key: plan, value: g*, rate_limit: {name: wild, unit: day, requests_per_unit: 1}}
      - {key: plan, value: gold, rate_limit: {name: gold, unit: day, requests_per_unit: 1}}
  - key: path
    value: /v1/health
    descriptors: [{key: user, rate_limit: {name: health, unit: day, requests_per_unit: 1}}]
  - {key: remote_address, value: 10.0.0.9, rate_limit: {name: address, unit: day, requests_per_unit: 1}}
  - {key: a_b, value: c, descriptors: [{key: x, rate_limit: {name: joined, unit: day, requests_per_unit: 1}}]}
  - {key: team, descriptors: [{key: x, rate_limit: {name: team, unit: day, requests_per_unit: 1}}]}
`)
	reason := func(set *rules.Ruleset, limit string, req rules.Request) string {
		list, _ := set.Explain("d", req)
		for _, e := range list {
			if e.Rule.LimitName == limit && !e.Applies {
				var out []string
				for _, m := range e.Mismatches {
					out = append(out, m.String())
				}
				return strings.Join(out, "; ")
			}
		}
		return "applies"
	}
	const secondToGold = "descriptor: wants to be the best match, is second to plan=gold (test.yaml:8:9)"
	for _, row := range []struct {
		limit, words                 string
		attributes, ours, compatible string // the reason for a request, and for a descriptor
	}{
		{"wild", "path=/v1/health plan=gold", secondToGold, secondToGold, "descriptor: wants to be the best match, is second to path=/v1/health (test.yaml:9:5)"},
		{"wild", "path=/v1/x plan=gold", secondToGold, secondToGold, secondToGold},
		{"wild", "path=/v1/x plan=green", "applies", "applies", "applies"},
		{"wild", "path=/v2/x", "path: wants /v1/*, is /v2/x; plan: wants g*, is absent", "entry 1: wants path=/v1/*, is path=/v2/x", "entry 1: wants path=/v1/*, is path=/v2/x"},
		{"address", "client_ip=10.0.0.1", "remote_address: wants 10.0.0.9, is 10.0.0.1", "entry 1: wants remote_address=10.0.0.9, is client_ip=10.0.0.1", "entry 1: wants remote_address=10.0.0.9, is client_ip=10.0.0.1"},
		{"address", "user=x", "remote_address: wants 10.0.0.9, is absent", "entry 1: wants remote_address=10.0.0.9, is user=x", "entry 1: wants remote_address=10.0.0.9, is user=x"},
		{"joined", "a=b_c", "a_b: wants c, is absent; x: wants any value, is absent", "entry 1: wants a_b=c, is a=b_c", "entry 2: wants x, is absent"},
		{"joined", "a_b=d x=1", "a_b: wants c, is d", "entry 1: wants a_b=c, is a_b=d", "entry 1: wants a_b=c, is a_b=d"},
		{"team", "team=red", "x: wants any value, is absent", "entry 2: wants x, is absent", "entry 2: wants x, is absent"},
		{"team", "team=red x=1 y=2", "applies", "entry 3: wants no more entries, is y=2", "entry 3: wants no more entries, is y=2"},
	} {
		descriptor := &rules.Descriptor{Entries: entriesOf(row.words)}
		for want, got := range map[*string]string{
			&row.attributes: reason(ours, row.limit, &attributesOnly{*descriptor}), &row.ours: reason(ours, row.limit, descriptor), &row.compatible: reason(theirs, row.limit, descriptor),
		} {
			if got != *want {
				t.Errorf("%s of %s: %s, want %s", row.limit, row.words, got, *want)
			}
		}
	}
}
