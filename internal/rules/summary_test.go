package rules_test

import (
	"testing"

	"github.com/headgate/headgate/internal/rules/rulefile"
)

func TestConditions(t *testing.T) {
	const text = `
domain: api
limits:
  - {name: all, rate: 1/s}
  - {name: login, match: {method: [POST, PUT], path: /login, host: "*.example.com"}, rate: 1/s}
  - {name: plan, match: {headers: {X-Plan: {not: gold}}, client_ip: [10.0.0.0/8, 192.0.2.1]}, rate: 1/s}
  - {name: keyed, match: {headers: {X-Api-Key: {present: true}}, query: {debug: {present: false}}}, rate: 1/s}
descriptors:
  - key: plan
    value: gold
    descriptors:
      - {key: user, rate_limit: {unit: second, requests_per_unit: 1}}
`
	rs, problems := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(text)})
	if rs == nil {
		t.Fatal(problems)
	}
	want := []string{
		"",
		"method is POST or PUT, path is /login, host is *.example.com",
		"client_ip is 10.0.0.0/8 or 192.0.2.1, header:X-Plan is not gold",
		"header:X-Api-Key is present, query:debug is absent",
		"plan=gold, user",
	}
	for i, r := range rs.Rules() {
		if got := r.Conditions(); got != want[i] {
			t.Errorf("%s: %q, want %q", r.Name, got, want[i])
		}
		if r.Index != i {
			t.Errorf("%s: index %d, want %d", r.Name, r.Index, i)
		}
	}
}
