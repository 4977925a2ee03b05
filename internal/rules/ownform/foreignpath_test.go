package ownform_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// said returns the rules of one limit with these keys, and what is said of them.
func said(t *testing.T, keys string) (*rules.Ruleset, string) {
	t.Helper()
	rs, problems := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte("domain: d\nlimits:\n  - {name: a, rate: 2/minute, " + keys + "}\n")})
	if rs != nil {
		problems = rs.Warnings()
	}
	return rs, diagnostic.Problems(problems).Error()
}

// TestWordsOfOtherLanguages: a condition that looks like a regular expression, a
// framework's route or a list in one text holds for no request, and that is said.
func TestWordsOfOtherLanguages(t *testing.T) {
	t.Parallel()
	for match, want := range map[string]string{
		`path: "/login|/register"`:       `write a list, ["/login", "/register"]`,
		`path: "/(login|register)"`:      "write a list",
		`path: "/signin, /signup"`:       `write a list, ["/signin", "/signup"]`,
		`path: "/login,/register"`:       `write a list, ["/login", "/register"]`,
		`path: "/login /register"`:       `write a list, ["/login", "/register"]`,
		`path: ["/v1/**", "!/a,!/b"]`:    `write a list, ["/a", "!/b"]`,
		`path: "/img/*.{png,jpg}"`:       "write a list",
		`path: "/users/u{id}"`:           "write * to match any characters",
		`path: "/users/<id>"`:            "write * to match any segment",
		`path: "/users/[id]"`:            "write * to match any segment",
		`path: "/users/[0-9]+"`:          "paths are not regular expressions",
		`path: '/users/\d+'`:             "paths are not regular expressions",
		`path: "/v1/.+"`:                 "paths are not regular expressions",
		`path: "/v1/(.*)"`:               "paths are not regular expressions",
		`path: "/v1/.*"`:                 `warning: the segment ".*" matches names that start with a dot`,
		`path: "/login$"`:                "leave it out",
		`path: "/login#x"`:               "warning: the path \"/login#x\" contains #",
		`method: ANY`:                    `leave "method" out`,
		`method: all`:                    `leave "method" out`,
		`method: "GET|POST"`:             "write a list, such as [GET, POST]",
		`method: "GET, POST"`:            "write a list, such as [GET, POST]",
		`headers: {X-Plan: "^trial.*$"}`: "warning: the value \"^trial.*$\" of \"header:X-Plan\" is not a regular expression",
		`headers: {X-Plan: "free|pro"}`:  "warning: the value \"free|pro\" of \"header:X-Plan\" is matched literally",
		`headers: {X: {not: "!free"}}`:   `write "\\!free" for a value that starts with !`,
		`path: "/v[12]"`:                 "warning: the [ in the path \"/v[12]\" is matched literally",
		`headers: {X: "[ab]"}`:           "not a regular expression",
		`headers: {X: "(?i)bot"}`:        "not a regular expression",
		`headers: {X: "/^free/"}`:        "not a regular expression",
		`headers: {X: "free,trial"}`:     "warning: the value \"free,trial\" of \"header:X\" is matched literally, including its comma",
		`method: [GET, POST, "!GET"]`:    `warning: "method" includes "GET" but also excludes it`,
		`headers: {X: [a, "!a"]}`:        "warning: the rule can never match",
	} {
		rs, got := said(t, "match: {"+match+"}")
		if !strings.Contains(got, want) || (strings.Contains(got, "warning") != (rs != nil)) || strings.HasPrefix(want, "warning") && rs == nil {
			t.Errorf("%s: %q, want %q", match, got, want)
		}
	}
	for _, match := range []string{
		`path: '/a\|b'`, `path: '/Products(1)'`, `path: '/users/\{id\}'`, `path: '/login\$'`, `path: '/\.*'`, `path: '/\[id\]'`,
		`path: "/$metadata"`, `path: "/a,b"`, `path: "/a b"`, `path: ["/.well-known/*", "/x.*"]`, `method: [get, MKCALENDAR]`,
		`headers: {X: "1.*"}`, `headers: {X: 'a\|b'}`, `headers: {X: "a$b"}`, `query: {q: "a, b"}`,
		`headers: {X: 'free\,trial'}`, `path: '/v\[12]'`, `headers: {Accept: "text/html,*/*"}`, `headers: {X: "/free/"}`,
	} {
		if rs, got := said(t, "match: {"+match+"}"); rs == nil || got != "" {
			t.Errorf("%s: %s", match, got)
		}
	}
}

// TestExcludedValues: a ! excludes under headers, query, cookies, jwt and
// attributes as it does in the other lists of match.
func TestExcludedValues(t *testing.T) {
	t.Parallel()
	for condition, want := range map[string]string{
		`"!enterprise"`:              "- !enterprise free",
		`["*", "!enterprise"]`:       "!enterprise free",
		`["!enterprise", "!free"]`:   "- !enterprise",
		`{is: ["*", "!e*"]}`:         "!enterprise free",
		`{is: "!e*", not: "!x"}`:     "error",
		`{is: "!e*", not: free}`:     "- !enterprise",
		`'\!enterprise'`:             "!enterprise",
		`{not: '\!enterprise'}`:      "- enterprise free",
		`{is: "!free", not: "e*"}`:   "- !enterprise",
		`["!enterprise", '\!ente*']`: "!enterprise",
	} {
		rs, problems := said(t, "match: {attributes: {plan: "+condition+"}}")
		if rs == nil || problems != "" {
			if want != "error" {
				t.Errorf("%s: %s", condition, problems)
			}
			continue
		}
		got := []string{}
		for _, plan := range []string{"-", "!enterprise", "enterprise", "free"} {
			var m rules.Matches
			if rs.Match("d", planned(plan), &m); len(m.Checks) > 0 {
				got = append(got, plan)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: applies to %q, want %q", condition, got, want)
		}
	}
}

// planned is a request with that plan, or none.
type planned string

func (p planned) Attribute(a rules.Attribute) (string, bool) {
	if a != (rules.Attribute{Name: "plan"}) || p == "-" {
		return "", false
	}
	return string(p), true
}

func (planned) ClientIP() netip.Addr { return netip.Addr{} }

// TestLimitsThatNeverRefuse: shares of one key, and costs of nothing.
func TestLimitsThatNeverRefuse(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]string{
		"cost: 0":                          "counts nothing: no request is ever refused",
		"percent: 0, key: client_ip":       `"percent" of 0 never enforces the limit; use mode: shadow instead`,
		"percent: 1":                       "this rule has no key: the limit is never enforced",
		"percent: 99":                      "this rule has no key: the limit is always enforced",
		"percent: 50, key: client_ip":      "",
		"percent: 100":                     "",
		`cost: {from: "header:X", min: 0}`: "",
		"tiers: {by: \"header:X\", pro: {percent: 1, rate: 3/minute}}": "the limit is never enforced",
	} {
		rs, got := said(t, keys)
		if rs == nil || !strings.Contains(got, want) || (want == "") != (got == "") || strings.Contains(got, "\n") {
			t.Errorf("%s: %q, want %q", keys, got, want)
		}
	}
}

// TestTiersExcludeNothing: a tier lists its values.
func TestTiersExcludeNothing(t *testing.T) {
	t.Parallel()
	if rs, got := said(t, `tiers: {by: "header:X", pro: {is: "!free", rate: 3/minute}}`); rs != nil || !strings.Contains(got, `the value "!free" of a tier must not be an exclusion`) {
		t.Error(got)
	}
}
