package rls_test

import (
	"testing"

	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate/headgate/internal/door/rls"
)

const envoyRules = `
domain: api
descriptors:
  - key: tenant
    value_to_metric: true
    metadata: {plan: free, nested: {tenant: yes}}
    rate_limit: {unit: minute, requests_per_unit: 3, name: tenant}
  - key: path
    value: /api/*
    rate_limit: {unit: hour, requests_per_unit: 5}
    descriptors:
      - key: method
        value: POST
        rate_limit: {unit: day, requests_per_unit: 1, name: posts, replaces: [{name: tenant}]}
  - key: path
    value: /api/v1/*
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: free
    rate_limit: {unlimited: true}
  - key: first
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: second
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 2}
`

func TestEnvoyRules(t *testing.T) {
	f := start1(t, setup{rules: envoyRules})
	quotas := request(descriptor("first", ""), descriptor("second", ""))
	f.trace([]step{
		{request(descriptor("path", "/api/x")), ok, codesOf{ok}, left{4}},
		{request(descriptor("path", "/api/v1/x")), ok, codesOf{ok}, left{0}},
		{request(descriptor("path", "/api/v1/x")), ok, codesOf{ok}, left{0}}, // in shadow mode
		{request(descriptor("path", "/other")), ok, codesOf{ok}, left{0}},
		{request(descriptor("free", "x")), ok, codesOf{ok}, left{4294967295}},
		{request(descriptor("path", "/api/x", "method", "GET")), ok, codesOf{ok}, left{0}},
		{request(descriptor("path", "/api/x", "method", "POST"), hits(9, descriptor("tenant", "a"))), ok, codesOf{ok, ok}, left{0, 0}},
		{request(hits(9, descriptor("tenant", "a"))), over, codesOf{over}, left{0}},
		{quotas, ok, codesOf{ok, ok}, left{0, 1}},
		{quotas, ok, codesOf{over, ok}, left{0, 0}},
		{quotas, over, codesOf{over, over}, left{0, 0}},
	})
	l := f.ask(request(descriptor("path", "/api/y", "method", "POST"))).GetStatuses()[0].GetCurrentLimit()
	if l.GetName() != "posts" || l.GetUnit() != envoy.RateLimitResponse_RateLimit_DAY || l.GetRequestsPerUnit() != 1 {
		t.Errorf("current_limit: %v", l)
	}
	if l := f.ask(request(descriptor("path", "/api/x"))).GetStatuses()[0].GetCurrentLimit(); l.GetName() != "" {
		t.Errorf("a limit without a name is called %q", l.GetName())
	}
}

// envoyproxy/ratelimit loses metadata if value_to_metric changes the key.
func TestMetadataIsNotLostWithValueToMetric(t *testing.T) {
	f := start1(t, setup{rules: envoyRules, rls: rls.Options{DynamicMetadata: true}})
	got := f.ask(request(descriptor("tenant", "a"))).GetDynamicMetadata().AsMap()["metadata"]
	equal(t, got, any(map[string]any{"plan": "free", "nested": map[string]any{"tenant": "yes"}}))
}

// Costs such as tokens of a language model are reported after their use.
func TestCostsAfterTheWorkCountUnderCompat(t *testing.T) {
	f := start1(t, setup{rules: "compat: envoy\n" + envoyRules[1:]})
	peek := request(hits(0, descriptor("tenant", "a")))
	f.trace([]step{
		{peek, ok, codesOf{ok}, left{3}},
		{request(hits(500, descriptor("tenant", "a"))), over, codesOf{over}, left{0}},
		{peek, over, codesOf{over}, left{0}},
	})
}
