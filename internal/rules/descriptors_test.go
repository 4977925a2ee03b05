package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// The keys next to the limit end up in the rule.
func TestDescriptorRules(t *testing.T) {
	set := parse(t, `
domain: d
limits:
  - {name: a, rate: 1/s}
descriptors:
  - {key: a, rate_limit: {name: A, unit: Minute, requests_per_unit: 7, replaces: [{name: B}, {name: a}]}}
  - {key: b, shadow_mode: on, quota_mode: true, rate_limit: {name: B, unit: SECOND, requests_per_unit: 0}}
  - {key: c, rate_limit: {unlimited: true}}
  - {key: e, rate_limit: {requests_per_unit: 10, unit: second, algorithm: token_bucket, burst: 20, cost: 2, percent: 5, on_store_error: deny, on_limit: {status: 503}}}
  - {key: "über weg", value: "a.b/c", rate_limit: {rate: 1/s}}
`)
	want := []string{
		"a d/a [] a 1/second token_bucket enforce",
		"a-68590bae d/|a [a] A 7/minute fixed_window enforce B,a",
		"b d/|b [b] B 0/second fixed_window shadow quota",
		"c d/|c [c]  unlimited enforce",
		"e d/|e [e]  10/second token_bucket burst 20 enforce",
		"_ber_weg_a.b/c d/|über weg=a.b/c []  1/second fixed_window enforce",
	}
	var got []string
	for _, r := range set.Rules() {
		text := fmt.Sprintf("%s %s %v %s %s %s %s", r.Name, r.Scope, r.Key, r.LimitName, r.Limit, r.Mode, strings.Join(r.Replaces, ","))
		if r.QuotaMode {
			text += "quota"
		}
		got = append(got, strings.TrimSpace(text))
		if set.Rule("d", r.Name) != r {
			t.Errorf("%s is not found by its name", r.Name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if e := set.Rule("d", "e"); e.Cost != 2 || e.Percent != 5 || e.OnStoreError != rules.StoreErrorDeny || e.OnLimit.Status != 503 {
		t.Errorf("got %+v", e)
	}
}

// Names are for metrics: short, and of few characters, whatever is in the file.
func TestDescriptorNamesAreBounded(t *testing.T) {
	long := strings.Repeat("long", 200)
	set := parse(t, fmt.Sprintf(`
domain: d
descriptors:
  - {key: %s, rate_limit: {rate: 1/s}}
  - {key: %[1]s, value: x, rate_limit: {rate: 1/s}}
  - {key: "a|b", rate_limit: {rate: 1/s}}
  - {key: "a", value: "b", rate_limit: {rate: 1/s}, descriptors: [{key: b, rate_limit: {rate: 1/s}}]}
  - {key: "a=b", rate_limit: {rate: 1/s}}
  - {key: "a", value: "b|b", rate_limit: {rate: 1/s}}
  - {key: "a%%7Cb", rate_limit: {rate: 1/s}}
`, long))
	names, scopes := map[string]bool{}, map[string]bool{}
	for _, r := range set.Rules() {
		if len(r.Name) > rules.MaxName || len(r.Scope) > rules.MaxScope+40 || names[r.Name] || scopes[r.Scope] {
			t.Errorf("%s, %s", r.Name, r.Scope)
		}
		names[r.Name], scopes[r.Scope] = true, true
	}
}

// What a star with share_threshold matches is counted together, level by level.
func TestShareThreshold(t *testing.T) {
	src := `
domain: d
descriptors:
  - {key: file, value: a.csv, rate_limit: {name: one, unit: minute, requests_per_unit: 1}}
  - {key: file, value: "*.csv", share_threshold: true, rate_limit: {name: csv, unit: minute, requests_per_unit: 1}}
  - key: user
    value: u*
    value_to_metric: true
    share_threshold: true
    descriptors:
      - key: file
        value: f*
        descriptors:
          - {key: user, value: "*x*", share_threshold: true, rate_limit: {name: deep, unit: minute, requests_per_unit: 1}}
`
	ours := parse(t, src)
	_, theirs := both(t, strings.NewReplacer("*.csv", "b*", "*x*", "a*").Replace(src))
	lookups{{"file=a.csv", "one"}, {"file=b.csv", "csv"}, {"user=u1 file=f1 user=axb", "deep: f1"}}.run(t, ours)
	lookups{
		{"file=a.csv", "one: d_file_a.csv_"},
		{"file=b.csv", "csv: d_file_b*_"},
		{"user=u1 file=f1 user=axb", "deep: d_user_u*_file_f1_user_a*_"},
	}.run(t, theirs)
	for _, r := range ours.Rules() {
		if len(r.MetricValues) > 0 {
			t.Errorf("%s has %v", r.Name, r.MetricValues)
		}
	}
}

// Limits are replaced by name, over all descriptors of a request.
func TestReplaces(t *testing.T) {
	set := parse(t, `
domain: d
limits:
  - {name: own, match: {attributes: {a: "*"}}, rate: 1/s}
descriptors:
  - {key: a, rate_limit: {name: A, rate: 1/s}}
  - {key: b, rate_limit: {name: B, rate: 1/s, replaces: [{name: A}, {name: own}]}}
  - {key: c, rate_limit: {name: C, rate: 1/s, replaces: [{name: B}]}}
  - {key: e, rate_limit: {rate: 1/s}}
`)
	for descriptors, want := range map[string]string{
		"a=1":             "own; A: 1",
		"a=1 | b=2":       "| B: 2",
		"b=2 | a=1":       "B: 2 |",
		"a=1 | b=2 | c=3": "| | C: 3", // B has replaced A all the same
		"a=1 | e=5":       "own; A: 1 | e: 5",
	} {
		parts := strings.Split(descriptors, " | ")
		matches := make([]rules.Matches, len(parts))
		for i, words := range parts {
			set.MatchDescriptor("d", entriesOf(words), &matches[i])
		}
		rules.ApplyReplaces(matches)
		var got []string
		for i := range matches {
			got = append(got, checks(&matches[i]))
		}
		if text := strings.Join(strings.Fields(strings.Join(got, " | ")), " "); text != want {
			t.Errorf("%s: got %q, want %q", descriptors, text, want)
		}
	}
	var m rules.Matches
	set.Match("d", request(t, "a=1 b=2 e=5"), &m)
	if got := checks(&m); got != "B: 2; e: 5" {
		t.Errorf("got %q", got)
	}
}

// Descriptors of a domain must be in one document, unless they are merged.
func TestDomainsOfDescriptors(t *testing.T) {
	source := func(name, src string) rulefile.Source { return rulefile.Source{Name: name, Data: []byte(src)} }
	const a = "domain: d\ndescriptors: [{key: a, rate_limit: {rate: 1/s}}]\n"
	const b = "domain: d\ndescriptors: [{key: b, rate_limit: {rate: 1/s}}]\n"
	const limits = "domain: d\nlimits: [{name: l, rate: 1/s, match: {attributes: {b: \"*\"}}}]\n"
	for name, c := range map[string]struct {
		options rulefile.Options
		sources []rulefile.Source
		want    string
	}{
		"two":          {sources: []rulefile.Source{source("1", a), source("2", b)}, want: `2:1:9: duplicate domain "d": its descriptors are already in 1:2:1; set merge_domains: true to combine them`},
		"option":       {options: rulefile.Options{MergeDomains: true}, sources: []rulefile.Source{source("1", a), source("2", b)}},
		"key in first": {sources: []rulefile.Source{source("1", "merge_domains: true\n"+a), source("2", b)}},
		"key in last":  {sources: []rulefile.Source{source("1", a), source("2", "merge_domains: true\n"+b)}},
		"same twice":   {options: rulefile.Options{MergeDomains: true}, sources: []rulefile.Source{source("1", a), source("2", a)}, want: `2:2:15: duplicate descriptor composite key "a": first in 1:2:15`},
		"own form":     {sources: []rulefile.Source{source("1", a), source("2", limits), source("3", limits)}, want: `3:2:17: duplicate name "l" in domain "d": first in 2:2:10`},
	} {
		t.Run(name, func(t *testing.T) {
			set, diagnostics := c.options.Parse(c.sources...)
			if c.want != "" {
				if len(diagnostics) != 1 || diagnostics[0].String() != c.want {
					t.Errorf("got %v", diagnostic.Problems(diagnostics))
				}
				return
			}
			if set == nil {
				t.Fatal(diagnostic.Problems(diagnostics))
			}
			lookups{{"a=1", "a: 1"}, {"b=1", "b: 1"}}.run(t, set)
		})
	}
}

// The metric that a rule asks for is named as the original names its own.
func TestAppendMetric(t *testing.T) {
	set := parse(t, `
domain: d
descriptors:
  - {key: user, detailed_metric: true, rate_limit: {name: detailed, rate: 1/s}}
  - key: det
    value: a
    descriptors:
      - {key: user, value_to_metric: true, rate_limit: {name: leaf, rate: 1/s}}
  - key: tenant
    value_to_metric: true
    descriptors:
      - {key: user, rate_limit: {name: above, rate: 1/s}}
      - {key: path, value: /a/*, rate_limit: {name: pattern, rate: 1/s}}
      - {key: file, value: "*.csv", share_threshold: true, value_to_metric: true, rate_limit: {name: together, rate: 1/s}}
      - {key: all, value: "*.csv", share_threshold: true, detailed_metric: true, rate_limit: {name: alltogether, rate: 1/s}}
  - {key: plain, rate_limit: {name: plain, rate: 1/s}}
`)
	for _, row := range []struct{ entries, rule, want string }{
		{"user=bob", "detailed", "user_bob"},
		{"user=", "detailed", "user"},
		{"det=a user=bob", "leaf", "det_a.user_bob"},
		{"tenant=t user=bob", "above", "tenant_t.user"},
		{"tenant=t path=/a/b", "pattern", "tenant_t.path_/a/*"},
		{"tenant=t file=1.csv", "together", "tenant_t.file_*.csv"},
		{"tenant=t all=1.csv", "alltogether", "tenant_t.all_*.csv"},
		{"plain=bob", "plain", ""},
	} {
		entries := entriesOf(row.entries)
		var m rules.Matches
		set.MatchDescriptor("d", entries, &m)
		if len(m.Checks) != 1 || m.Checks[0].Rule.LimitName != row.rule {
			t.Fatalf("%s: %+v", row.entries, m.Checks)
		}
		r, got := m.Checks[0].Rule, ""
		if r.SplitsMetric() {
			got = string(r.AppendMetric(nil, entries))
		}
		if got != row.want {
			t.Errorf("%s: %q, want %q", row.entries, got, row.want)
		}
	}
}
