package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules"
)

// entriesOf reads "key=value key=value"; a value may have spaces written as +.
func entriesOf(words string) []rules.Entry {
	var out []rules.Entry
	for word := range strings.FieldsSeq(words) {
		key, value, _ := strings.Cut(word, "=")
		out = append(out, rules.Entry{key, strings.ReplaceAll(value, "+", " ")})
	}
	return out
}

// limited returns "name: key" of the checks of a descriptor, with the parts of
// the key between commas.
func limited(set *rules.Ruleset, words string) string {
	var m rules.Matches
	if !set.MatchDescriptor("d", entriesOf(words), &m) {
		return "unknown domain"
	}
	return checks(&m)
}

func checks(m *rules.Matches) string {
	var out []string
	for _, c := range m.Checks {
		parts, ok := rules.SplitKey(c.Key)
		if !ok {
			return fmt.Sprintf("the key %q cannot be split", c.Key)
		}
		text := c.Rule.LimitName
		if text == "" {
			text = c.Rule.Name
		}
		var values []string
		for _, p := range parts {
			values = append(values, p.Value)
		}
		out = append(out, strings.TrimSuffix(text+": "+strings.Join(values, ","), ": "))
	}
	return strings.Join(out, "; ")
}

type lookups []struct{ entries, want string }

func (l lookups) run(t *testing.T, set *rules.Ruleset) {
	t.Helper()
	for _, c := range l {
		if got := limited(set, c.entries); got != c.want {
			t.Errorf("%s:\ngot  %q\nwant %q", c.entries, got, c.want)
		}
	}
}

const treeRules = `
domain: d
descriptors:
  - key: remote_address
    rate_limit: {name: each, unit: minute, requests_per_unit: 10}
  - key: remote_address
    value: 192.0.2.7
    rate_limit: {name: seven, unit: minute, requests_per_unit: 100}
  - key: remote_address
    value: 192.0.2.8
  - key: path
    value: /api/*
    rate_limit: {name: api, unit: minute, requests_per_unit: 10}
    descriptors:
      - key: user
        rate_limit: {name: api user, unit: minute, requests_per_unit: 3}
  - key: path
    value: /api/v1/*
    rate_limit: {name: v1, unit: minute, requests_per_unit: 5}
  - key: path
    value: "*.png"
    share_threshold: true
    rate_limit: {name: images, unit: second, requests_per_unit: 5}
  - key: path
    value: "/api/*/x*y"
    rate_limit: {name: stars, unit: second, requests_per_unit: 5}
  - key: path
    value: /login
    descriptors:
      - key: user
        value: root
        rate_limit: {name: root, unlimited: true}
  - key: path
    descriptors:
      - key: user
        rate_limit: {name: any user, unit: hour, requests_per_unit: 9}
`

// At each level the most specific descriptor applies, at exactly the depth of the
// request's; one that leads nowhere gives way to the next.
func TestDescriptorsMatch(t *testing.T) {
	lookups{
		{"remote_address=192.0.2.1", "each: 192.0.2.1"},
		{"remote_address=192.0.2.7", "seven"},
		{"remote_address=192.0.2.8", ""}, // exempt
		{"remote_address=", "each"},
		{"remote_address=192.0.2.1 path=/x", ""},
		{"other=1", ""},
		{"", ""},
		{"path=/api/v2/a", "api: /api/v2/a"},
		{"path=/api/v1/a", "v1: /api/v1/a"},
		{"path=/api/v1/x.png", "v1: /api/v1/x.png"},
		{"path=/api/v2/xy", "stars: /api/v2/xy"},
		{"path=/img/x.png", "images"},
		{"path=/api/v2/a user=u", "api user: /api/v2/a,u"},
		// v1 has nothing below, so the wider one is asked.
		{"path=/api/v1/a user=u", "api user: /api/v1/a,u"},
		{"path=/login", ""},
		{"path=/login user=root", "root"},
		{"path=/login user=u", "any user: /login,u"},
		{"user=u path=/login", ""},
		{"path=/login user=u more=1", ""},
		{"path=/other", ""},
	}.run(t, parse(t, treeRules))
}

func TestUnknownDomainOfADescriptor(t *testing.T) {
	var m rules.Matches
	if parse(t, treeRules).MatchDescriptor("e", entriesOf("path=/login"), &m) || len(m.Checks) > 0 {
		t.Error("the domain is known")
	}
}

// A request that is no descriptor comes under all limits whose keys and values
// are among its attributes.
func TestDescriptorsMatchAttributes(t *testing.T) {
	set := parse(t, treeRules)
	for words, want := range map[string]string{
		"":                    "",
		"client_ip=192.0.2.1": "each: 192.0.2.1",
		"client_ip=192.0.2.7": "seven",
		"client_ip=192.0.2.8": "",
		"path=/api/v2/a":      "api: /api/v2/a",
		// Read as it came it is not below /api/v1, so that v1 does not exempt it.
		"path=//api/./v1/a":  "api: /api/v1/a; v1: /api/v1/a",
		"path=/LOGIN user=u": "any user: /login,u",
		"user=u":             "",
		"path=/login user=u": "any user: /login,u",
		"path=/login user=root remote_address=192.0.2.7 header:X-Y=z": "seven; root",
		"user=u path=/api/v2/a client_ip=192.0.2.9":                   "each: 192.0.2.9; api: /api/v2/a; api user: /api/v2/a,u",
	} {
		var m rules.Matches
		set.Match("d", request(t, words), &m)
		if got := checks(&m); got != want {
			t.Errorf("%s:\ngot  %q\nwant %q", words, got, want)
		}
	}
}

// Rules of both forms apply to one descriptor.
func TestBothFormsMatchADescriptor(t *testing.T) {
	set := parse(t, `
domain: d
limits:
  - {name: login, match: {path: /login, client_ip: 192.0.2.0/24}, key: client_ip, rate: 5/minute}
  - {name: plan, match: {headers: {X-Plan: free}, attributes: {tenant: acme}}, key: [tenant, user], rate: 5/minute}
descriptors:
  - key: path
    rate_limit: {name: path, unit: minute, requests_per_unit: 7}
    descriptors:
      - key: remote_address
        rate_limit: {name: both, unit: minute, requests_per_unit: 7}
`)
	lookups{
		{"path=/login", "path: /login"},
		{"path=/login remote_address=192.0.2.1", "login: 192.0.2.1; both: /login,192.0.2.1"},
		{"path=//login/ client_ip=192.0.2.1", "login: 192.0.2.1"},
		{"client_ip=198.51.100.1 remote_address=192.0.2.1 path=/login", ""},
		{"remote_address=nonsense path=/login", ""},
		{"header:x-plan=free tenant=acme", "plan: acme,"},
		{"tenant=acme user=u header:X-PLAN=free tenant=other", "plan: acme,u"},
		{"tenant=acme", ""},
	}.run(t, set)
}
