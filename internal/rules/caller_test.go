package rules_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// callerOf returns a request with attributes in pairs: name, value.
func callerOf(t *testing.T, attributes ...string) *described.Request {
	t.Helper()
	clients, err := client.New(client.Config{TrustedProxies: []netip.Prefix{}})
	if err != nil {
		t.Fatal(err)
	}
	q := new(described.Request)
	for i := 0; i < len(attributes); i += 2 {
		a, err := rules.ParseAttribute(attributes[i])
		if err != nil {
			t.Fatal(err)
		}
		if must := q.Add(a, attributes[i+1], clients); must != "" {
			t.Fatal(must)
		}
	}
	return q
}

func rulesetOf(t *testing.T, text string) *rules.Ruleset {
	t.Helper()
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(text)})
	if rs == nil {
		t.Fatal(diagnostics)
	}
	return rs
}

func TestOfCaller(t *testing.T) {
	rs := rulesetOf(t, `domain: api
limits:
  - {name: by-address, match: {method: POST, path: /login}, key: client_ip, rate: 5/minute}
  - {name: by-key, match: {path: /v1/**, query: {page: "*"}}, key: "header:X-Api-Key", rate: 9/minute}
  - {name: by-path, key: [client_ip, path], rate: 9/minute}
  - {name: by-query, key: "query:token", rate: 9/minute}
  - {name: by-method, key: [client_ip, method], rate: 9/minute}
  - {name: everyone, rate: 9/minute}
  - {name: watched, key: client_ip, rate: 9/minute, mode: shadow}
  - {name: hidden, key: client_ip, rate: 9/minute, on_limit: {action: shadow_ban}}
  - {name: nobody, key: client_ip, rate: 9/minute, percent: 0}
  - {name: pro, match: {headers: {X-Plan: pro}}, key: client_ip, rate: 9/minute}
  - {name: office, match: {client_ip: 192.0.2.0/24}, key: client_ip, rate: 9/minute}
  - {name: shop, match: {host: shop.example}, key: client_ip, rate: 9/minute}
  - name: tiers
    key: "jwt:sub"
    tiers: {by: "jwt:plan", gold: {rate: 100/minute}, silver: {rate: 10/minute}}
    rate: 1/minute
`)
	for _, row := range []struct {
		who  []string
		want string
	}{
		{[]string{"client_ip", "198.51.100.7"}, "by-address shop"},
		{[]string{"client_ip", "192.0.2.7"}, "by-address office shop"},
		{[]string{"client_ip", "192.0.2.7", "header:X-Plan", "pro", "host", "other.example"}, "by-address pro office"},
		{[]string{"header:X-Api-Key", "k", "query:token", "x", "path", "/elsewhere"}, "by-key"},
		{[]string{"jwt:sub", "ann"}, "tiers 1/minute token_bucket"},
		{[]string{"jwt:sub", "ann", "jwt:plan", "gold"}, "tiers/gold"},
		{[]string{"jwt:plan", "gold"}, ""},
		{nil, ""},
	} {
		caller := rs.OfCaller("api", callerOf(t, row.who...))
		var names []string
		for _, x := range caller.Limits {
			if names = append(names, x.Rule.Name); x.Rule.Name == "tiers" {
				names = append(names, x.Rule.Limit.String())
			}
		}
		if got := strings.Join(names, " "); got != row.want || !caller.Known {
			t.Errorf("%v: %q, want %q", row.who, got, row.want)
		}
	}
	if rs.OfCaller("nowhere", callerOf(t)).Known {
		t.Error("a domain without rules is known")
	}
}

// A request that a rule counts shows the same key to its sender, whatever it requests;
// and no request is shown a key that none of its own would be counted under.
func TestOfCallerHasTheKeysOfMatch(t *testing.T) {
	text := "domain: api\nlimits:\n"
	keys := []string{"client_ip", `"header:X-Api-Key"`, `["cookie:s", client_ip]`, `"hash:header:X-Api-Key"`, `"jwt:sub"`}
	for i, key := range keys {
		text += fmt.Sprintf("  - {name: r%d, match: {path: /p%d/**, method: GET}, key: %s, rate: 5/minute}\n", i, i, key)
	}
	rs, r := rulesetOf(t, text), rand.New(rand.NewPCG(1, 2))
	listed := 0
	for range 500 {
		var who []string
		for name, value := range map[string]string{"client_ip": "192.0.2.1", "header:X-Api-Key": "k", "cookie:s": "c", "jwt:sub": "ann"} {
			if r.IntN(2) == 0 {
				who = append(who, name, value)
			}
		}
		list := rs.OfCaller("api", callerOf(t, who...)).Limits
		for i := range keys {
			var m rules.Matches
			rs.Match("api", callerOf(t, append(slices.Clone(who), "method", "GET", "path", fmt.Sprintf("/p%d/x", i))...), &m)
			for _, x := range list {
				if x.Rule.Name != fmt.Sprintf("r%d", i) {
					continue
				}
				if listed++; len(m.Checks) != 1 || m.Checks[0].Key != x.Key || m.Checks[0].Rule != x.Rule {
					t.Errorf("%v: shown %q of %s, counted %+v", who, x.Key, x.Rule.Name, m.Checks)
				}
			}
		}
	}
	if listed < 500 {
		t.Errorf("only %d were listed", listed)
	}
}

// No limit counts callers on a list; a list in shadow mode changes nothing.
func TestOfCallerOnLists(t *testing.T) {
	rs := rulesetOf(t, `domain: api
allow: {client_ip: 192.0.2.0/24}
deny: {client_ip: 203.0.113.0/24}
limits: [{name: a, key: client_ip, rate: 5/minute}]
---
domain: api
deny: {mode: shadow, client_ip: 198.51.100.0/24}
`)
	for address, want := range map[string]string{
		"192.0.2.1": "allowed", "203.0.113.1": "denied by deny client_ip", "198.51.100.1": "1 limits", "10.0.0.1": "1 limits",
		"::ffff:203.0.113.1": "denied by deny client_ip", "64:ff9b::203.0.113.1": "denied by deny client_ip", "64:ff9b::cb00:7101": "denied by deny client_ip",
		"64:ff9b::192.0.2.1": "1 limits", "64:ff9b:1::203.0.113.1": "1 limits",
	} {
		caller := rs.OfCaller("api", callerOf(t, "client_ip", address))
		got := fmt.Sprintf("%d limits", len(caller.Limits))
		switch {
		case caller.Allowed:
			got = "allowed"
		case caller.DeniedBy != nil:
			got = "denied by " + caller.DeniedBy.Name
		}
		if got != want || !caller.Known {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
