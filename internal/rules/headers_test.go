package rules_test

import (
	"testing"
)

func TestHeadersOfADomain(t *testing.T) {
	set := parse(t, `
domain: a
limits: [{name: first, rate: 1/s}]
---
domain: a
headers: github
descriptors: [{key: k, rate_limit: {rate: 1/s}}]
---
domain: a
headers: github
limits: [{name: last, rate: 1/m}]
---
domain: b
limits: [{name: first, rate: 1/s}]
---
domain: c
headers: default
limits: [{name: first, rate: 1/s}]
`)
	count := map[string]int{}
	for _, r := range set.Rules() {
		count[r.Domain+" "+r.Headers]++
	}
	for want, n := range map[string]int{"a github": 3, "b ": 1, "c default": 1} {
		if count[want] != n {
			t.Errorf("%d rules of %q, want %d: %v", count[want], want, n, count)
		}
	}
}
